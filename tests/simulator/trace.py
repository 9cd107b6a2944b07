"""The trace of a run: one line for each thing that happened, the same lines for the same seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence


class Trace:
    def __init__(self, now_s: Callable[[], float], *, in_detail: bool = False) -> None:
        self.in_detail = in_detail
        self.lines: list[str] = []
        self._now_s = now_s
        self._start_s = now_s()

    def note(self, text: str) -> None:
        self.lines.append(f"{self._now_s() - self._start_s:10.4f}  {text}")


def digest(lines: Sequence[str]) -> str:
    """A short name for a whole trace."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
