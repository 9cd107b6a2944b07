"""Finds event boundaries, counts and times of a segment in the store's sparse index.

The index segment holds records of some event boundaries (``pravega_common.event_index``); it is read with ordinary
range reads, so the same code serves our stores and Pravega from 0.14 on. Older ones keep no index:
``UnsupportedOperation``.

What a record says: the first ``length`` bytes hold ``event_count`` events, truncated ones included. Events behind it
were appended at ``time_ms`` or later, those before it by ``time_ms``, by the store's clock. (Pravega notes the time
some ten milliseconds after the append, so that events near a record may lie on its other side by that much.) The index
lags behind the segment for a moment, usually a tenth of a second; what it does not know yet is counted by estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from pravega_common.errors import InvalidArgument, SegmentNotFound, SegmentTruncated, Unavailable, UnsupportedOperation
from pravega_common.event_index import (
    CREATION_TIME_ATTRIBUTE,
    EVENT_COUNT,
    LENGTH,
    TIME_MS,
    IndexRecord,
    RecordPage,
    RecordSearch,
    page_range,
    page_records,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import index_segment_name
from pravega_streams.batch.pipelined_calls import PipelinedCalls
from pravega_streams.segment.index_pages import IndexPages, last_pages, pages_of, read_records, records_of
from pravega_streams.segment.segment_client import SegmentClient

time_unknown: Final = -1
"""Stands for a time that the index does not know yet."""
attempts_max: Final = 3
"""Attempts at one question, when the index is truncated while it is read."""

_T = TypeVar("_T")
_ORIGIN: Final = IndexRecord(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of an event and, if there is one behind it, the beginning of the next; an indexed one."""

    offset: int
    event_count: int
    """Events before it since the beginning of the segment, truncated ones included. Exact."""


@dataclass(frozen=True, slots=True)
class EventCount:
    events: int
    is_exact: bool
    """False where an end lies between indexed boundaries, or beyond the last one."""


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """A boundary to which to read on, with the events on the way there."""

    offset: int
    events: int
    is_exact: bool
    """Whether ``events`` is the number, or an estimate; ``offset`` is a boundary in any case."""


class EventIndex:
    """The boundaries of one segment as they were when this was made; make a new one for what came later.

    Costs two requests (three the first time), and one per page of 1,024 records that was not read before: full pages
    are kept for all later questions. Errors of every method: those of ``SegmentClient``.
    """

    def __init__(
        self,
        client: SegmentClient,
        pages: IndexPages,
        index: SegmentInfo,
        segment: SegmentInfo,
        tail: RecordPage | None = None,
    ) -> None:
        """Use ``of``. ``tail``: the last page, if it was read already."""
        self._tail = tail
        self._client = client
        self._pages = pages
        self._index = index
        self.segment = segment.name
        self.start_offset = segment.start_offset
        self._end = records_of(index)[1]
        self.indexed_length = self._ask(lambda: (self._at(self._end - 1) or _ORIGIN).length)
        """Length in the last record: up to here, boundaries are known."""
        self.length = max(segment.length, self.indexed_length)
        """Length of the segment: a boundary too, since stores take whole blocks of events."""

    @classmethod
    def of(cls, client: SegmentClient, segment: str, info: SegmentInfo | None = None) -> EventIndex:
        """The index of a segment, given by its qualified name; ``info`` if its present state is known already.

        ``UnsupportedOperation`` where the store keeps none, ``SegmentNotFound`` if there is no such segment.
        """
        pages = pages_of(client)
        name = index_segment_name(segment)
        try:
            index = client.info(name)
            pages.check_format(client, name)
        except SegmentNotFound:
            client.info(segment)  # says so if the segment itself is missing
            raise UnsupportedOperation(
                f"{segment}: its store keeps no index of event boundaries; Pravega does from version 0.14 on"
            ) from None
        # Only now, unless told: the records must not lie beyond the length.
        return cls(client, pages, index, info or client.info(segment))

    @classmethod
    def of_many(cls, client: SegmentClient, calls: PipelinedCalls, segments: Iterable[str]) -> dict[str, EventIndex]:
        """The same of many segments, by name, at a cost of a few round trips a store.

        Those that are not there or have no index are left out, and those that could not be asked about together: ``of``
        says what it is.
        """
        pages = pages_of(client)
        named = {segment: index_segment_name(segment) for segment in segments}
        indexes = client.infos(named.values())
        found = {segment: name for segment, name in named.items() if name in indexes}
        pages.check_formats(calls, list(found.values()))
        infos = client.infos(found)  # After the indexes: the records must not lie beyond the length.
        return {
            segment: cls(client, pages, indexes[name], infos[segment], tail)
            for segment, name, tail in last_pages(calls, pages, found, indexes)
            if segment in infos and pages.is_checked(name)
        }

    # ---- questions ---------------------------------------------------------------------------------------------------

    def offset_at_or_after(self, offset: int) -> int:
        """The smallest indexed boundary at or after ``offset`` (as ``LocateOffset``), else the segment's length."""
        return self._ask(lambda: self._length_at(self._search(LENGTH, max(offset, self.start_offset))))

    def offset_of_event(self, event_count: int) -> Boundary:
        """Find the last indexed boundary with at most ``event_count`` events before it. Its own count is exact.

        The beginning of the segment counts as indexed. The answer may lie just below the start offset;
        ``SegmentTruncated`` if it lies so far below that the index has forgotten it.
        """

        def answer() -> Boundary:
            below = self._at(self._search(EVENT_COUNT, event_count + 1) - 1)
            if below is None:
                raise SegmentTruncated(self.segment, self.start_offset, 0)
            return Boundary(below.length, below.event_count)

        return self._ask(answer)

    def offset_at_time(self, time_ms: int) -> int:
        """The smallest offset known to have only events of that time or later behind it.

        That is the first boundary whose record has this time or a later one: some events of that time or later may lie
        before it, back to ``offset_before_time``. Without such a boundary it is the length of the segment, and what
        follows is later than now. The beginning of the segment if that was made at the time or later.

        As the end of a range it takes every event from before the time, and few others.
        """

        def answer() -> int:
            number = self._search(TIME_MS, time_ms)
            if number == 0 and self._client.attribute(self.segment, CREATION_TIME_ATTRIBUTE) >= time_ms:
                return self.start_offset
            return self._length_at(number)

        return self._ask(answer)

    def offset_before_time(self, time_ms: int) -> int:
        """The greatest offset known to have all events of that time or later behind it.

        That is the last boundary whose record has an earlier time: behind it may come some earlier events, up to
        ``offset_at_time``. Without such a boundary it is the start offset.

        As the start of a range it misses no event of that time or later, and takes few others.
        """

        def answer() -> int:
            below = self._at(self._search(TIME_MS, time_ms) - 1)
            return self.start_offset if below is None else max(below.length, self.start_offset)

        return self._ask(answer)

    def times_behind(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The time of the first indexed boundary behind each offset, in ms; ``time_unknown`` where none is known yet.

        Offsets ascend. An event that begins at one was taken by that time, and not before the time of the boundary
        before it: at most 64 KiB or one block lie between, and in our stores what came within about 0.1 s.
        """
        return self._ask(lambda: self._times_behind(offsets))

    def _times_behind(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        times = np.full(len(offsets), time_unknown, np.int64)
        done = 0
        number = self._search(LENGTH, int(offsets[0]) + 1) if len(offsets) else self._end
        while done < len(offsets) and number < self._end:
            page = self._page(number // page_records)
            stop = int(np.searchsorted(offsets, page.record(page.end - 1).length))
            times[done:stop] = page.times_behind(offsets[done:stop])
            done, number = stop, page.end
        return times

    def events_between(self, start: int, end: int) -> EventCount:
        """Count the events between two offsets: exact between indexed boundaries, in proportion elsewhere."""
        if not 0 <= start <= end:
            raise InvalidArgument(f"{self.segment}: offsets {start} and {end} must be in order and not negative")
        if start == end:
            return EventCount(0, is_exact=True)

        def answer() -> EventCount:
            first, last = self._events_before(start), self._events_before(end)
            return EventCount(max(0, last.events - first.events), first.is_exact and last.is_exact)

        return self._ask(answer)

    def advance(self, start: int, events_max: int) -> ReadTarget:
        """Find the farthest boundary with at most ``events_max`` events behind ``start``, else the nearest one.

        So it always goes on, unless ``start`` is the end of the segment, and exceeds the limit by one stretch at most.
        """
        if events_max < 0 or not 0 <= start <= self.length:
            raise InvalidArgument(f"{self.segment}: no {events_max} events can follow offset {start} of {self.length}")
        return self._ask(lambda: self._advance(start, events_max))

    def _advance(self, start: int, events_max: int) -> ReadTarget:
        if start == self.length:
            return ReadTarget(start, 0, is_exact=True)
        before = self._events_before(start)
        number = self._search(EVENT_COUNT, before.events + events_max + 1)
        if number == self._end:
            total = self._events_before(self.length)
            if total.events - before.events <= events_max or self.indexed_length <= start:
                return self._advance_to(self.length, total, before)
        found = self._at(number - 1)
        if found is None or found.length <= start:
            number = self._search(LENGTH, start + 1)
            found = self._at(number) if number < self._end else None
        if found is None:
            return self._advance_to(self.length, self._events_before(self.length), before)
        return self._advance_to(found.length, EventCount(found.event_count, is_exact=True), before)

    @staticmethod
    def _advance_to(offset: int, total: EventCount, before: EventCount) -> ReadTarget:
        return ReadTarget(offset, max(0, total.events - before.events), total.is_exact and before.is_exact)

    # ---- counting ----------------------------------------------------------------------------------------------------

    def _events_before(self, offset: int) -> EventCount:
        number = self._search(LENGTH, offset)
        below = self._at(number - 1) or _ORIGIN  # truncated or not, the segment began with no events
        if below.length == offset:
            return EventCount(below.event_count, is_exact=True)
        if number == self._end:
            return _estimate(below.event_count + self._density() * (offset - below.length))
        above = self._record(number)
        if above.length == offset:
            return EventCount(above.event_count, is_exact=True)
        share = (offset - below.length) / (above.length - below.length)
        return _estimate(below.event_count + share * (above.event_count - below.event_count))

    def _density(self) -> float:
        """Events per byte between the first and the last record there are, for what lies beyond them."""
        last = self._at(self._end - 1) or _ORIGIN
        first = self._record(self._first) if self._first < self._end - 1 else _ORIGIN
        return (last.event_count - first.event_count) / max(last.length - first.length, 1)

    # ---- records -----------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> int:
        return records_of(self._index)[0]

    def _ask(self, question: Callable[[], _T]) -> _T:
        """Asked again with what is left of the index, if it was truncated in between."""
        for _ in range(attempts_max):
            try:
                return question()
            except SegmentTruncated as error:
                if error.segment == self.segment:
                    raise
                start_offset = self._client.info(self._index.name).start_offset
                self._index = replace(self._index, start_offset=start_offset)
        raise Unavailable(f"{self.segment}: its index was truncated {attempts_max} times while it was read")

    def _search(self, column: int, value: int) -> int:
        """The number of the first record whose column is at least ``value``, else ``_end``."""
        search = RecordSearch(self._first, self._end, column, value)
        while (wanted := search.wanted) is not None:
            search.feed(self._page(wanted))
        return search.found

    def _at(self, number: int) -> IndexRecord | None:
        """The record, the beginning of the segment before the first of all, or None if it is truncated."""
        if number >= self._first:
            return self._record(number)
        return _ORIGIN if number < 0 else None

    def _length_at(self, number: int) -> int:
        return max(self._record(number).length, self.start_offset) if number < self._end else self.length

    def _record(self, number: int) -> IndexRecord:
        return self._page(number // page_records).record(number)

    def _page(self, number: int) -> RecordPage:
        first, end = page_range(number, self._first, self._end)
        page = self._tail
        if page is None or page.first > first or page.end < end or page.first // page_records != number:
            page = self._pages.get(self._index.name, number)
        if page is None or page.first > first or page.end < end:
            page = RecordPage(first, read_records(self._client, self._index.name, first, end))
            self._pages.put(self._index.name, number, page)
        return page


def _estimate(events: float) -> EventCount:
    return EventCount(max(0, round(events)), is_exact=False)
