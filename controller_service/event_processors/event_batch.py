"""Decides which events of one slice are handled next; knows neither handlers nor streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic

from controller_service.event_processors.event_processor import Concurrency, E
from pravega_common.invariants import check


@dataclass(frozen=True, slots=True)
class BatchedEvent(Generic[E]):
    """An event of a slice; ``event`` is None for one that this version cannot handle."""

    offset: int
    """Where it begins in its segment."""
    data: memoryview
    key: str
    event: E | None
    merge_key: Hashable | None = None


class EventBatch(Generic[E]):
    """Some successive events of a segment, from the first one to start to the last one to finish.

    Invariants: an event starts once; with ``PER_KEY`` no two events of a key run at a time, and they start in order;
    with ``SERIAL`` no two events do. ``handled_until`` never passes an event that is not finished.
    """

    def __init__(self, events: Sequence[BatchedEvent[E]], concurrency: Concurrency, start: int, end: int) -> None:
        """``start`` and ``end``: the offsets of the first event and behind the last one, those left out included."""
        self._start = start
        self._end = end
        self._unfinished: dict[int, BatchedEvent[E]] = {}
        self._lines: dict[Hashable, deque[BatchedEvent[E]]] = {}
        self._concurrency = concurrency
        last = {event.merge_key: event.offset for event in events if event.merge_key is not None}
        kept = [event for event in events if event.merge_key is None or last[event.merge_key] == event.offset]
        self.merged_count = len(events) - len(kept)
        """Events that a later one stands for."""
        for event in kept:
            check(start <= event.offset < end, "an event outside of its batch", offset=event.offset)
            self._unfinished[event.offset] = event
            self._lines.setdefault(self._line_of(event), deque()).append(event)
        self._first_of = {event.merge_key: event.offset for event in reversed(events) if event.merge_key is not None}
        self._ready = [line[0] for line in self._lines.values()]

    def startable(self) -> list[BatchedEvent[E]]:
        """The events to start now; each is given once."""
        ready, self._ready = self._ready, []
        return ready

    def finish(self, event: BatchedEvent[E]) -> None:
        """Note that an event needs nothing more: it was handled, refused, or is written behind the others."""
        line = self._lines[self._line_of(event)]
        check(line.popleft() is event, "an event finished out of turn", offset=event.offset)
        del self._unfinished[event.offset]
        if line:
            self._ready.append(line[0])

    @property
    def is_done(self) -> bool:
        return not self._unfinished

    @property
    def handled_until(self) -> int:
        """The offset before which nothing is left to do, also of events that a later one stands for."""
        left = (self._first_of.get(event.merge_key, event.offset) for event in self._unfinished.values())
        return min(left, default=self._end)

    def _line_of(self, event: BatchedEvent[E]) -> Hashable:
        match self._concurrency:
            case Concurrency.SERIAL:
                return None
            case Concurrency.CONCURRENT:
                return event.offset
            case Concurrency.PER_KEY:
                return event.key
