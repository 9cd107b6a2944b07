"""Knows the events at the beginnings of many ranges that were read ahead, and answers about all of them at once.

The answers are those of ``KnownEvents`` for each segment: one question of NumPy takes the place of a thousand. All
boundaries of all segments stand in one sorted array, each with the number of its segment above its place in the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pravega_common.invariants import check
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import event_header_bytes, stored_event_bytes_max
from pravega_spark.source.event_walk import Walked
from pravega_spark.source.known_events import KnownEvents
from pravega_streams.segment.event_index import EventCount

steps_together_max: Final = 64
"""Events of differing lengths that are found for all segments together, one of each in a step; a segment that has more
of them is walked alone."""
equal_events_max: Final = 256 * 1024
"""Events of equal length that are looked for together, at some 40 bytes of memory each; where there could be more, as
they are tiny, each segment is walked alone."""

_place_bits: Final = 32
_place_max: Final = (1 << _place_bits) - 1
"""A place in the bytes of one segment must be below; ranges that are read ahead have some kilobytes."""

Bools = npt.NDArray[np.bool_]


class KnownHeads:
    """Whole events at the beginnings of ranges of one stream's segments."""

    def __init__(self, known: Mapping[int, KnownEvents]) -> None:
        """``known``: by segment id."""
        self._known = known
        self._rows = {item: row for row, item in enumerate(known)}
        heads = list(known.values())
        self._first = np.array([int(head.starts[0]) if len(head.starts) else head.end for head in heads], np.int64)
        self._end = np.array([head.end for head in heads], np.int64)
        self._counts = np.array([len(head.starts) for head in heads], np.int64)
        self._next_bytes = np.array([head.next_bytes for head in heads], np.int64)
        check(not heads or int((self._end - self._first).max()) < _place_max, "more was read ahead than has places")
        # Of each segment the starts of its events, and the end of the last one.
        self._begins = np.concatenate(([0], np.cumsum(self._counts + 1)))[:-1]
        borders = [part for head in heads for part in (head.starts, (head.end,))]
        self._borders: Int64s = np.concatenate(borders).astype(np.int64) if borders else np.zeros(0, np.int64)
        rows = np.repeat(np.arange(len(heads)), self._counts + 1)
        self._keys = (rows << _place_bits) + (self._borders - self._first[rows])

    @classmethod
    def of(cls, starts: Mapping[int, int], data: Mapping[int, memoryview]) -> KnownHeads:
        """From the bytes of each segment that begin with an event at its offset in ``starts``.

        Segments with other bytes are left out; their readers report them.
        """
        return cls(events_of_heads(starts, data))

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._rows

    def of_segment(self, segment_id: int) -> KnownEvents | None:
        """The events of one segment."""
        return self._known.get(segment_id)

    def estimated(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, EventCount]:
        """Count the events of each span, as ``KnownEvents.estimated``; without spans of which nothing is known."""
        items, rows, (starts, ends) = self._columns(spans, 2)
        if not items:
            return {}
        first, last = self._numbers(rows, starts), self._numbers(rows, ends)
        is_within, is_exact = first >= 0, (first >= 0) & (last >= 0)
        is_behind = starts > self._end[rows]
        counted_from = np.where(is_within, first, 0)
        known = self._counts[rows] - counted_from
        from_offset = self._borders[self._begins[rows] + counted_from]
        event_bytes = np.where(
            known > 0, (self._end[rows] - from_offset) / np.maximum(known, 1), np.maximum(self._next_bytes[rows], 1)
        )
        beyond = np.rint((ends - np.where(is_behind, starts, self._end[rows])) / event_bytes).astype(np.int64)
        estimated = np.maximum(np.where(is_behind, beyond, known + beyond), 1)
        events = np.where(is_exact, last - first, estimated)
        answered = zip(items, (is_within | is_behind).tolist(), events.tolist(), is_exact.tolist(), strict=True)
        return {item: EventCount(count, exact) for item, is_known, count, exact in answered if is_known}

    def walked(self, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, Walked]:
        """Step over events as ``KnownEvents.walked``: start, end, and number of events of each segment."""
        items, rows, (starts, ends, counts) = self._columns(wanted, 3)
        if not items:
            return {}
        first, stop = self._numbers(rows, starts), self._numbers(rows, ends)
        last = first + counts
        is_there = (first >= 0) & (last <= self._counts[rows])
        borders = self._borders[self._begins[rows] + np.where(is_there, last, 0)]
        is_there &= borders <= ends
        is_at_end = ~is_there & (first >= 0) & (stop >= 0)
        offsets, passed = np.where(is_there, borders, ends), np.where(is_there, counts, stop - first)
        answered = zip(items, (is_there | is_at_end).tolist(), offsets.tolist(), passed.tolist(), strict=True)
        return {item: Walked(offset, events) for item, is_known, offset, events in answered if is_known}

    def at_or_after(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """The next boundary at or after an offset of each segment, as ``KnownEvents.at_or_after``."""
        items, rows, (wanted,) = self._columns({item: (offset,) for item, offset in offsets.items()}, 1)
        if not items:
            return {}
        is_known = (self._first[rows] <= wanted) & (wanted <= self._end[rows])
        found = self._borders[np.where(is_known, self._places(rows, wanted), 0)]
        answered = zip(items, is_known.tolist(), found.tolist(), strict=True)
        return {item: offset for item, known, offset in answered if known}

    def _columns(self, asked: Mapping[int, tuple[int, ...]], width: int) -> tuple[list[int], Int64s, Sequence[Int64s]]:
        """The segments of a question that are known, their rows, and the numbers (``width``) that it has for each."""
        items = [item for item in asked if item in self._rows]
        columns = np.array([asked[item] for item in items], np.int64).reshape(len(items), width)
        return items, np.array([self._rows[item] for item in items], np.int64), list(columns.T)

    def _places(self, rows: Int64s, offsets: Int64s) -> Int64s:
        """Find the place in the borders of the first one at or after each offset of a row."""
        places = np.clip(offsets - self._first[rows], 0, _place_max)
        found: Int64s = np.searchsorted(self._keys, (rows << _place_bits) + places)
        return found

    def _numbers(self, rows: Int64s, offsets: Int64s) -> Int64s:
        """The number of events before each boundary in its row; -1 for an offset that is no known boundary."""
        if not len(rows):
            return rows
        places = self._places(rows, offsets)
        numbers = places - self._begins[rows]
        is_known = (numbers <= self._counts[rows]) & (
            self._borders[np.minimum(places, len(self._borders) - 1)] == offsets
        )
        return np.where(is_known, numbers, -1)


def events_of_heads(starts: Mapping[int, int], data: Mapping[int, memoryview]) -> dict[int, KnownEvents]:
    """The events of each segment's bytes, as ``KnownEvents.of`` has them, found for all segments together.

    First those that are as long as the first one of their segment; then every step takes the next event of every
    segment that has one.
    """
    items = list(data)
    sizes = np.array([len(data[item]) for item in items], np.int64)
    begins: Int64s = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
    headers = _headers(b"".join(data.values()))
    ends = begins + sizes
    passed = [_equal_runs(headers, begins, sizes)]
    places, wanted = begins.copy(), np.zeros(len(items), np.int64)
    _follow(headers, places, *passed[0])
    is_long = _events_left(headers, begins, places, ends) > steps_together_max
    rows = np.flatnonzero(~is_long)
    for _ in range(steps_together_max):
        has_header = ends[rows] - places[rows] >= event_header_bytes
        wanted[rows[~has_header]] = np.where(places[rows] < ends[rows], event_header_bytes, 0)[~has_header]
        rows = rows[has_header]
        lengths, is_event = _lengths_at(headers, places[rows])
        following = places[rows] + event_header_bytes + lengths
        is_whole = is_event & (following <= ends[rows])
        is_cut = is_event & ~is_whole
        wanted[rows[is_cut]] = (lengths + event_header_bytes)[is_cut]
        wanted[rows[~is_event]] = -1
        passed.append((rows[is_whole], places[rows[is_whole]]))
        rows = rows[is_whole]
        places[rows] = following[is_whole]
        if not len(rows):
            break
    alone = {*rows.tolist(), *np.flatnonzero(is_long | (wanted < 0)).tolist()}
    return _made(items, starts, data, (begins, places, wanted), passed, alone)


def _headers(data: bytes) -> npt.NDArray[np.uint64]:
    """The eight bytes at every place of some bytes as a number, without a copy of them."""
    count = max(0, len(data) - event_header_bytes + 1)
    return np.ndarray((count,), dtype=">u8", buffer=data if count else bytes(event_header_bytes), strides=(1,))


def _lengths_at(headers: npt.NDArray[np.uint64], places: Int64s) -> tuple[Int64s, Bools]:
    """The lengths that the headers at these places say, and which of them are headers of events."""
    lengths = headers[places]
    is_event: Bools = lengths <= stored_event_bytes_max
    return np.where(is_event, lengths, 0).astype(np.int64), is_event


def _events_left(headers: npt.NDArray[np.uint64], begins: Int64s, places: Int64s, ends: Int64s) -> Int64s:
    """About how many events of each segment come from ``places`` on, if they are as long as its first one."""
    has_first = ends - begins >= event_header_bytes
    first = np.full(len(begins), event_header_bytes, np.int64)
    first[has_first] += _lengths_at(headers, begins[has_first])[0]
    return (ends - places) // first


def _equal_runs(headers: npt.NDArray[np.uint64], begins: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """The events at the beginning of each segment that are as long as its first one: their rows and places, in order.

    None where there could be too many.
    """
    rows = np.flatnonzero(sizes >= event_header_bytes)
    lengths, is_event = _lengths_at(headers, begins[rows])
    rows, event_bytes = rows[is_event], (lengths + event_header_bytes)[is_event]
    counts = sizes[rows] // event_bytes
    rows, event_bytes, counts = rows[counts > 0], event_bytes[counts > 0], counts[counts > 0]
    total = int(counts.sum())
    if not 0 < total <= equal_events_max:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    borders = np.cumsum(counts) - counts
    numbers = np.arange(total) - np.repeat(borders, counts)
    places = np.repeat(begins[rows], counts) + numbers * np.repeat(event_bytes, counts)
    is_equal = headers[places] == np.repeat(headers[begins[rows]], counts)
    runs = np.minimum.reduceat(np.where(is_equal, total, numbers), borders)
    is_run = numbers < np.repeat(runs, counts)
    return np.repeat(rows, counts)[is_run], places[is_run]


def _follow(headers: npt.NDArray[np.uint64], places: Int64s, rows: Int64s, passed: Int64s) -> None:
    """Move ``places`` behind the last event that was passed in each row."""
    if len(rows):
        is_last = np.append(rows[1:] != rows[:-1], True)
        last = passed[is_last]
        places[rows[is_last]] = last + event_header_bytes + _lengths_at(headers, last)[0]


def _made(
    items: Sequence[int],
    starts: Mapping[int, int],
    data: Mapping[int, memoryview],
    found: tuple[Int64s, Int64s, Int64s],
    passed: Sequence[tuple[Int64s, Int64s]],
    alone: set[int],
) -> dict[int, KnownEvents]:
    """Make what is known of each segment; those in ``alone`` are walked by themselves.

    ``found``: where each begins in the joined bytes, how far its events were followed, and what the next one has.
    """
    begins, places, wanted = found
    rows = np.concatenate([some for some, _ in passed])
    order = np.argsort(rows, kind="stable")
    rows, at = rows[order], np.concatenate([some for _, some in passed])[order]
    offsets = np.array([starts[item] for item in items], np.int64) - begins
    borders = np.searchsorted(rows, np.arange(len(items) + 1)).tolist()
    at += offsets[rows]
    stops, left = (places + offsets).tolist(), wanted.tolist()
    known: dict[int, KnownEvents] = {}
    for row, item in enumerate(items):
        if row in alone:
            one = KnownEvents.of(starts[item], data[item])
            if one is not None:
                known[item] = one
        elif borders[row] < borders[row + 1] or left[row] > event_header_bytes:
            known[item] = KnownEvents(at[borders[row] : borders[row + 1]], stops[row], left[row])
    return known
