"""Bytes that were read ahead, compared with a list of events."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from pravega_spark.source.event_walk import Walked
from pravega_spark.source.known_events import KnownEvents
from pravega_streams.segment.event_index import EventCount

START = 1000


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 300), st.data())
def test_what_is_known_agrees_with_the_events(sizes: list[int], cut: int, data: st.DataObject) -> None:
    framed = b"".join(struct.pack(">ii", 0, size) + bytes(size) for size in sizes)
    borders = [START]
    for size in sizes:
        borders.append(borders[-1] + 8 + size)
    known = KnownEvents.of(START, memoryview(framed[:cut]))
    if known is None:
        assert min(cut, len(framed)) <= 8
        return
    assert known.end == max(border for border in borders if border <= START + min(cut, len(framed)))
    first = data.draw(st.integers(0, len(borders) - 1))
    last = data.draw(st.integers(first, len(borders) - 1))
    start, end, count = borders[first], borders[last], data.draw(st.integers(1, 14))
    walked = known.walked(start, end, count)
    if walked is not None:
        assert walked == Walked(borders[min(first + count, last)], min(count, last - first))
    assert (walked is None) == (min(borders[min(first + count, last)], end) > known.end or start > known.end)
    counted = known.estimated(start, end)
    assert counted is not None
    if end <= known.end:
        assert counted == EventCount(last - first, is_exact=True)
    else:
        assert counted.events >= 1 and not counted.is_exact
    offset = data.draw(st.integers(START, borders[-1]))
    expected = min((border for border in borders if border >= offset), default=None)
    assert known.at_or_after(offset) == (expected if offset <= known.end else None)


def test_events_beyond_what_is_known_are_as_large_as_the_known_ones() -> None:
    framed = (struct.pack(">ii", 0, 92) + bytes(92)) * 5
    known = KnownEvents.of(START, memoryview(framed[:250]))
    assert known is not None
    assert known.estimated(START, START + 100_000) == EventCount(1000, is_exact=False)
    one = KnownEvents.of(START, memoryview(framed[:50]))
    assert one is not None
    assert one.estimated(START, START + 500) == EventCount(5, is_exact=False)


def test_bytes_that_are_no_events_are_left_to_their_reader() -> None:
    assert KnownEvents.of(0, memoryview(b"\xff" * 100)) is None
