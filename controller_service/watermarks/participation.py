"""Decides which writers count for a stream's next watermark, and between which times they are (pure).

A writer participates if it reported a time after the last watermark's lower bound. One that does not is waited for,
until it is gone or has reported nothing for the stream's timestamp aggregation timeout; then it is inactive, as every
writer is after a day. The next watermark is due when every active writer participates.

A report that lies a day ahead is of a clock that was wrong: its writer does not count until it reports again, and its
mark is kept, as the wrong clock may be the present one.
"""

from __future__ import annotations

from controller_service.store.records import WriterMark
from controller_service.store.writer_marks import mark_life_default_ms
from controller_service.watermarks.watermark import Watermark


class MarkFold:
    """Takes the marks of a stream's writers, one after the other, in memory that does not grow with the writers."""

    def __init__(self, last: Watermark | None, timeout_ms: int, now_ms: int) -> None:
        """``timeout_ms``: 0 waits for nobody. ``now_ms`` is by the clock that gave the marks their ``noted_ms``."""
        self._last = last
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._waits = self._participates = False
        self._bounds: tuple[int, int] | None = None
        self.reached: dict[int, int] = {}
        """Segment id to the largest offset that an active writer reported."""

    def add(self, mark: WriterMark) -> bool:
        """Whether the mark is to be kept; that of a writer that is not active any more can be forgotten."""
        silent_ms = self._now_ms - mark.noted_ms
        if silent_ms <= -mark_life_default_ms:
            return True
        if silent_ms >= max(self._timeout_ms, mark_life_default_ms):
            return False
        participates = self._last is None or mark.timestamp > self._last.lower_time
        if not participates:
            if not mark.is_alive or silent_ms >= self._timeout_ms:
                return False
            self._waits = True
        self._participates = self._participates or participates
        lower, upper = self._bounds or (mark.timestamp, mark.timestamp)
        self._bounds = min(lower, mark.timestamp), max(upper, mark.timestamp)
        for identifier, offset in mark.position.items():
            # Some clients report -1 for a segment that they have not written to.
            self.reached[identifier] = max(offset, self.reached.get(identifier, 0))
        return True

    @property
    def is_empty(self) -> bool:
        """Whether no writer is active."""
        return self._bounds is None

    @property
    def is_held(self) -> bool:
        """Whether a writer is waited for while another one went on."""
        return self._waits and self._participates

    @property
    def due(self) -> tuple[int, int] | None:
        """The bounds of the next watermark; None while a writer is waited for."""
        return None if self._waits else self._bounds
