"""Checks the client's view of event boundaries over the wire, on the fake store and on stores without an index."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pravega_common.errors import InvalidArgument, SegmentNotFound, SegmentTruncated, UnsupportedOperation
from pravega_common.event_index import (
    CREATION_TIME_ATTRIBUTE,
    EXPECTED_EVENT_SIZE_ATTRIBUTE,
    IndexRecord,
    encode_records,
    page_records,
)
from pravega_common.wire import commands as c
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment import index_pages
from pravega_streams.segment.event_index import Boundary, EventCount, EventIndex, ReadTarget, time_unknown
from pravega_streams.segment.segment_client import SegmentClient
from segment_service.contracts.attributes import EVENT_COUNT, AttributeUpdate, AttributeUpdateType
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.unit.pravega_streams.test_blocking_table import with_client

SEGMENT = "scope/stream/0.#epoch.0"
INDEX = SEGMENT + "#index"


def raw(store: InMemorySegmentStore, name: str) -> Any:
    """A segment of the fake as it is stored: the tests give it an index that the fake would not write by itself."""
    return store._segments[name]


async def filled(store: InMemorySegmentStore, records: list[IndexRecord], length: int = 0) -> None:
    """Creates a segment whose index has just these records."""
    await store.create_segment(SEGMENT)
    raw(store, SEGMENT).data += bytes(length or (records[-1].length if records else 0))
    raw(store, INDEX).data += encode_records(records)


async def asked(endpoint: Endpoint, question: Callable[[EventIndex], Any]) -> Any:
    return await with_client(endpoint, lambda client: question(EventIndex.of(client, SEGMENT)))


THREE = [IndexRecord(100, 10, 1_000), IndexRecord(300, 20, 2_000), IndexRecord(310, 21, 3_000)]


async def test_what_appends_and_merges_leave(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await segments.create_segment(SEGMENT)
    for events in (2, 3):
        count = AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, events)
        await segments.append(SEGMENT, [bytes(events * 10)], [count])

    def use(index: EventIndex) -> None:
        assert (index.start_offset, index.indexed_length, index.length) == (0, 50, 50)
        assert index.offset_at_or_after(1) == 20
        assert index.offset_of_event(4) == Boundary(20, 2)
        assert index.events_between(20, 50) == EventCount(3, True)

    await asked(endpoint, use)


async def test_offsets(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)

    def use(index: EventIndex) -> None:
        answers = {0: 100, 100: 100, 101: 300, 310: 310, 311: 400, 400: 400, 1_000: 400}
        assert {offset: index.offset_at_or_after(offset) for offset in answers} == answers

    await asked(endpoint, use)


async def test_times_behind_offsets(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    """Of the boundary behind each, over pages of the index; none is known behind the last one."""
    await filled(segments, THREE, 400)

    def use(index: EventIndex) -> None:
        offsets = np.array([0, 99, 100, 299, 300, 309, 310, 399])
        unknown = [time_unknown] * 2
        assert index.times_behind(offsets).tolist() == [1_000, 1_000, 2_000, 2_000, 3_000, 3_000, *unknown]
        assert index.times_behind(offsets[3:5]).tolist() == [2_000, 3_000]
        assert index.times_behind(offsets[:0]).tolist() == []

    await asked(endpoint, use)


async def test_times_behind_offsets_of_many_pages(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    count = 3 * page_records + 7
    await filled(segments, [IndexRecord(10 * number, number, 5 * number) for number in range(1, count + 1)])
    chance = random.Random(1)

    def use(index: EventIndex) -> None:
        for _ in range(20):
            offsets = np.sort(np.array([chance.randrange(10 * count) for _ in range(chance.randrange(1, 200))]))
            assert index.times_behind(offsets).tolist() == [5 * (offset // 10 + 1) for offset in offsets]

    await asked(endpoint, use)


async def test_events(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)

    def use(index: EventIndex) -> None:
        answers = {0: (0, 0), 9: (0, 0), 10: (100, 10), 20: (300, 20), 21: (310, 21), 99: (310, 21)}
        assert {count: index.offset_of_event(count) for count in answers} == {
            count: Boundary(*answer) for count, answer in answers.items()
        }

    await asked(endpoint, use)


async def test_times(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)
    raw(segments, SEGMENT).attributes[CREATION_TIME_ATTRIBUTE] = 500

    def use(index: EventIndex) -> None:
        first_sure = {500: 0, 501: 100, 1_000: 100, 1_001: 300, 2_000: 300, 2_001: 310, 3_000: 310, 3_001: 400}
        last_sure = {500: 0, 1_000: 0, 1_001: 100, 2_000: 100, 2_001: 300, 3_000: 300, 3_001: 310, 9_000: 310}
        assert {time: index.offset_at_time(time) for time in first_sure} == first_sure
        assert {time: index.offset_before_time(time) for time in last_sure} == last_sure

    await asked(endpoint, use)


async def test_counts_between(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)

    def use(index: EventIndex) -> None:
        assert index.events_between(0, 310) == EventCount(21, True)
        assert index.events_between(100, 310) == EventCount(11, True)
        assert index.events_between(200, 200) == EventCount(0, True)
        assert index.events_between(0, 200) == EventCount(15, False)
        assert index.events_between(150, 310) == EventCount(9, False)
        assert index.events_between(310, 400) == EventCount(round(11 / 210 * 90), False)
        for start, end in ((5, 4), (-1, 4)):
            with pytest.raises(InvalidArgument):
                index.events_between(start, end)

    await asked(endpoint, use)


async def test_advancing(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)

    def use(index: EventIndex) -> None:
        assert index.advance(0, 10) == ReadTarget(100, 10, True)
        assert index.advance(0, 19) == ReadTarget(100, 10, True)
        assert index.advance(0, 21) == ReadTarget(310, 21, True)
        assert index.advance(0, 1_000) == ReadTarget(400, 26, False)
        assert index.advance(100, 1) == ReadTarget(300, 10, True), "the nearest boundary, when none is within the limit"
        assert index.advance(150, 9) == ReadTarget(310, 9, False)
        assert index.advance(310, 1) == ReadTarget(400, 5, False)
        assert index.advance(400, 5) == ReadTarget(400, 0, True)
        with pytest.raises(InvalidArgument):
            index.advance(401, 5)

    await asked(endpoint, use)


async def test_a_truncated_segment(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, THREE, 400)
    raw(segments, SEGMENT).start_offset = 305
    raw(segments, INDEX).start_offset = 24

    def use(index: EventIndex) -> None:
        assert index.offset_at_or_after(0) == 310
        assert index.offset_of_event(20) == Boundary(300, 20)
        assert index.offset_before_time(1) == index.offset_before_time(2_500) == 305
        assert index.offset_at_time(1) == 305
        assert index.events_between(300, 310) == EventCount(1, True)
        assert index.events_between(100, 310) == EventCount(14, False)
        with pytest.raises(SegmentTruncated):
            index.offset_of_event(19)

    await asked(endpoint, use)


async def test_an_index_that_knows_nothing_yet(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, [], 400)

    def use(index: EventIndex) -> None:
        assert index.offset_at_or_after(5) == 400
        assert index.offset_of_event(7) == Boundary(0, 0)
        assert index.events_between(0, 400) == EventCount(0, False)
        assert index.advance(0, 7) == ReadTarget(400, 0, False)
        assert (index.offset_before_time(5), index.offset_at_time(1 << 60)) == (0, 400)

    await asked(endpoint, use)


@pytest.mark.parametrize("seed", range(10))
async def test_random_indexes_of_many_pages(
    segments: InMemorySegmentStore, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(index_pages, "pages_cached_max", 2)
    rng = random.Random(seed)
    records, last = [], IndexRecord(0, 0, 1_000)
    for _ in range(rng.randrange(1, 4 * page_records)):
        last = IndexRecord(
            last.length + rng.randint(1, 99), last.event_count + rng.randrange(3), last.time_ms + rng.randrange(3)
        )
        records.append(last)
    await filled(segments, records, last.length + 50)
    lengths, counts, times = ([record[field] for record in records] for field in range(3))

    def use(index: EventIndex) -> None:
        for _ in range(30):
            offset, number = rng.randrange(last.length + 99), rng.randrange(last.event_count + 2)
            at = bisect_left(lengths, offset)
            assert index.offset_at_or_after(offset) == (lengths[at] if at < len(lengths) else index.length)
            at = bisect_right(counts, number) - 1
            assert index.offset_of_event(number) == (Boundary(lengths[at], counts[at]) if at >= 0 else Boundary(0, 0))
            time_ms = rng.randrange(1_001, last.time_ms + 2)
            at = bisect_left(times, time_ms)
            assert index.offset_before_time(time_ms) == (lengths[at - 1] if at else 0)
            assert at == 0 or index.offset_at_time(time_ms) == (lengths[at] if at < len(lengths) else index.length)
            first, second = sorted(rng.choices(range(len(records)), k=2))
            between = index.events_between(lengths[first], lengths[second])
            assert between == EventCount(counts[second] - counts[first], True)
            check_advance(index, offset % index.length, rng.randrange(200))

    def check_advance(index: EventIndex, start: int, events_max: int) -> None:
        found = index.advance(start, events_max)
        assert found.offset > start and (found.offset in lengths or found.offset == index.length)
        if found.events > events_max:
            assert found.offset == index.offset_at_or_after(start + 1)

    await asked(endpoint, use)


async def test_pages_are_read_once(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await filled(segments, [IndexRecord(10 * n, n, n) for n in range(1, 3 * page_records + 1)])

    def use(client: SegmentClient) -> None:
        reads = []
        plain_call = client.call

        def call(segment: str, make: Any, expect: Any, **options: Any) -> Any:
            reads.append(make(1)) if expect is c.SegmentRead else None
            return plain_call(segment, make, expect, **options)

        client.call = call  # type: ignore[method-assign]
        for _ in range(5):
            index = EventIndex.of(client, SEGMENT)
            for offset in range(0, index.length, 1_000):
                index.offset_at_or_after(offset)
        assert len(reads) == 3

    await with_client(endpoint, use)


async def test_an_index_that_is_truncated_meanwhile_is_asked_again(
    segments: InMemorySegmentStore, endpoint: Endpoint
) -> None:
    await filled(segments, [IndexRecord(10 * n, n, n) for n in range(1, 3 * page_records + 1)])
    loop = asyncio.get_running_loop()

    async def truncate() -> None:
        raw(segments, INDEX).start_offset = 24 * (page_records + 5)

    def use(index: EventIndex) -> None:
        asyncio.run_coroutine_threadsafe(truncate(), loop).result()
        assert index.offset_at_or_after(5) == 10 * (page_records + 6)
        assert index.offset_of_event(2 * page_records) == Boundary(20 * page_records, 2 * page_records)

    await asked(endpoint, use)


async def test_stores_without_an_index_say_so(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    def use(client: SegmentClient) -> None:
        with pytest.raises(SegmentNotFound) as missing:
            EventIndex.of(client, SEGMENT)
        assert missing.value.segment == SEGMENT

    await with_client(endpoint, use)
    await segments.create_segment(SEGMENT)
    await segments.delete(INDEX)
    with pytest.raises(UnsupportedOperation, match=r"no index .* 0\.14"):
        await asked(endpoint, lambda index: index)


async def test_records_of_another_size_are_not_understood(segments: InMemorySegmentStore, endpoint: Endpoint) -> None:
    await segments.create_segment(SEGMENT)
    raw(segments, INDEX).attributes[EXPECTED_EVENT_SIZE_ATTRIBUTE] = 32
    with pytest.raises(UnsupportedOperation, match="32 bytes"):
        await asked(endpoint, lambda index: index)
