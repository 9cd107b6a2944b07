"""Remembers in which process something was made: a process that is forked has a copy, which it must not use."""

from __future__ import annotations

import os

from pravega_common.errors import InvalidArgument


class OwnProcess:
    """The process in which it was made."""

    def __init__(self) -> None:
        self._id = os.getpid()

    @property
    def is_current(self) -> bool:
        return os.getpid() == self._id

    def check(self, what: str) -> None:
        """``InvalidArgument`` in a process that was forked since. ``what``: what was made, as in "a writer"."""
        if not self.is_current:
            raise InvalidArgument(f"{what} of process {self._id} is used in process {os.getpid()}; make one in each")
