"""Decides which segment is flushed next: those that fell due, in the order in which they did."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

from segment_service.writer.segment_order import SegmentOrder


class FlushSchedule:
    """Segments that wait for their time, or for the log to grow beyond them, and those that are due.

    No method costs in proportion to the segments that wait; ``advance`` does to those that fall due.
    """

    def __init__(self) -> None:
        self._by_time = SegmentOrder[float]()
        self._by_position = SegmentOrder[int]()
        self._due: OrderedDict[int, None] = OrderedDict()
        self._has_timed = asyncio.Event()

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def plan(self, segment_id: int, at_s: float, log_position: int | None, now_s: float) -> None:
        """Set the time at which the segment falls due: infinity for never. It also does when the log has grown to the
        position."""
        if at_s <= now_s:
            self._make_due(segment_id)
            return
        self._due.pop(segment_id, None)
        is_timed = at_s != math.inf
        self._by_time.set(segment_id, at_s if is_timed else None)
        self._by_position.set(segment_id, log_position if is_timed else None)
        if is_timed:
            self._has_timed.set()

    def forget(self, segment_id: int) -> None:
        self._by_time.set(segment_id, None)
        self._by_position.set(segment_id, None)
        self._due.pop(segment_id, None)

    def advance(self, now_s: float) -> None:
        """Make due what has its time now."""
        for segment_id in self._by_time.take_up_to(now_s):
            self._make_due(segment_id)

    def log_grew(self, position: int) -> None:
        """Make due what waits for the log to grow to this position, or to one before it."""
        for segment_id in self._by_position.take_up_to(position):
            self._make_due(segment_id)

    def take(self) -> int | None:
        """Take out the segment that has been due for longest."""
        return self._due.popitem(last=False)[0] if self._due else None

    def put_back(self, segment_id: int) -> None:
        """Undo ``take``."""
        self._due[segment_id] = None
        self._due.move_to_end(segment_id, last=False)

    async def wait_timed(self) -> None:
        """Return once a segment waits for its time."""
        if not self._by_time:
            self._has_timed.clear()
            await self._has_timed.wait()

    def _make_due(self, segment_id: int) -> None:
        self._by_time.set(segment_id, None)
        self._by_position.set(segment_id, None)
        self._due[segment_id] = None
