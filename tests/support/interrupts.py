"""Interrupts a program as Ctrl-C does, at a chosen one of the places where Python looks for signals."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any


class Interrupt:
    """Raises ``KeyboardInterrupt`` once, at the ``place``-th of these in some modules: where a function of theirs
    begins, and where a call of one that is not written in Python has returned."""

    def __init__(self, place: int, *modules: ModuleType) -> None:
        self.places_left = place
        self.has_come = False
        self._files = {module.__file__ for module in modules}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """What is inside may end here, with nothing raised."""
        sys.setprofile(None if self.has_come else self._look)
        try:
            yield
        except KeyboardInterrupt:
            if not self.has_come:
                raise
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or code.co_filename not in self._files:
            return
        if code.co_flags & inspect.CO_GENERATOR:  # One that is freed begins once more, and can raise to nobody.
            return
        self.places_left -= 1
        if self.places_left < 0:
            self.has_come = True
            sys.setprofile(None)
            raise KeyboardInterrupt
