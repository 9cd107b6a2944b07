"""Closes the parts of an object with it, also those that another thread is just making."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from pravega_common.errors import InvalidArgument

T = TypeVar("T")


class Closing:
    """The parts of one object that have connections, each with what closes it. Safe to use from several threads."""

    def __init__(self, name: str) -> None:
        """``name``: that of the object in the error of who uses it when it is closed."""
        self._name = name
        self._closes: list[Callable[[], object]] = []
        self._is_closed = False
        self._lock = threading.RLock()

    def keep(self, part: T, close: Callable[[], object]) -> T:
        """Return a new part, which is closed with the others. ``InvalidArgument`` once they are: it may not be used,
        and has connected nothing yet."""
        with self._lock:
            if self._is_closed:
                raise InvalidArgument(f"{self._name} is closed; make another one")
            self._closes.append(close)
        return part

    def close(self) -> None:
        """Close all, for good, the last one first; also those that come after one that fails."""
        with self._lock:
            self._is_closed = True
            closes, self._closes = self._closes, []
        with contextlib.ExitStack() as parts:
            for close in closes:
                parts.callback(close)
