"""Knows the events of some bytes of a segment that were read ahead, by pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pravega_common.errors import DataCorruption
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import event_header_bytes, index_events
from pravega_spark.source.event_walk import Walked
from pravega_streams.segment.event_index import EventCount


@dataclass(frozen=True, slots=True)
class KnownEvents:
    """Whole events one behind the other; all positions are offsets in the segment."""

    starts: Int64s
    end: int
    """Where the last of them ends."""
    next_bytes: int
    """Bytes of the event that begins there and is cut off, its header included; 0 if none is."""

    @classmethod
    def of(cls, start: int, data: memoryview) -> KnownEvents | None:
        """From bytes that begin with an event at offset ``start``; None for others, which their reader reports."""
        try:
            layout = index_events(data)
        except DataCorruption:
            return None
        if not layout.end and layout.wanted_bytes <= event_header_bytes:  # Not even of the first event all is there.
            return None
        return cls(layout.starts.astype(np.int64) + start, start + layout.end, layout.wanted_bytes)

    def walked(self, start: int, end: int, count: int) -> Walked | None:
        """``count`` events on from ``start``, or all up to ``end``, both boundaries; None where that is not known."""
        first = self._number(start)
        if first is None:
            return None
        last = first + count
        if last <= len(self.starts) and (offset := self._boundary(last)) <= end:
            return Walked(offset, count)
        stop = self._number(end)
        return None if stop is None else Walked(end, stop - first)

    def at_or_after(self, offset: int) -> int | None:
        """The next boundary."""
        first = self._boundary(0)
        return self._boundary(int(np.searchsorted(self.starts, offset))) if first <= offset <= self.end else None

    def estimated(self, start: int, end: int) -> EventCount | None:
        """Count the events between two boundaries; beyond what is known there are as many as in it for each byte."""
        if start > self.end:
            return EventCount(max(1, round((end - start) / self._event_bytes(0))), is_exact=False)
        first = self._number(start)
        if first is None:
            return None
        stop = self._number(end)
        if stop is not None:
            return EventCount(stop - first, is_exact=True)
        beyond = round((end - self.end) / self._event_bytes(first))
        return EventCount(max(1, len(self.starts) - first + beyond), is_exact=False)

    def _event_bytes(self, first: int) -> float:
        """Bytes of an event, on average of those from a number on."""
        events = len(self.starts) - first
        return (self.end - self._boundary(first)) / events if events else max(1, self.next_bytes)

    def _number(self, offset: int) -> int | None:
        """The number of events that begin before a boundary; None for one that is not known."""
        number = int(np.searchsorted(self.starts, offset))
        if number < len(self.starts):
            return number if int(self.starts[number]) == offset else None
        return number if offset == self.end else None

    def _boundary(self, number: int) -> int:
        return int(self.starts[number]) if number < len(self.starts) else self.end
