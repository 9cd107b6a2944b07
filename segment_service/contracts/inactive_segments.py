"""Defines the contract between the log of a container and the segments that are not in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pravega_common.errors import PravegaError


class InactiveSegments(Protocol):
    """Segments of a container that nobody used for a while: the metadata table has them, memory has not."""

    def may_have(self, name: str) -> bool:
        """Whether a segment of this name, which is not in memory, may be in the table. Never waits; after a look-up
        that found nothing it is false, at least until the loop's next turn."""
        ...

    def bring(self, name: str, then: Callable[[PravegaError | None], None]) -> None:
        """Look the segment up and put it into memory if it is there; then call ``then``, in a later turn of the loop,
        with the error if the table could not be asked. Look-ups of one name at the same time are one."""
        ...
