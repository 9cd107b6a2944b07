"""Says how every ``SegmentStore`` keeps event boundaries."""

from __future__ import annotations

import random

import pytest

from pravega_common.errors import InvalidArgument, SegmentNotFound, Throttled
from pravega_common.event_index import index_record_bytes
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    EXPECTED_INDEX_EVENT_SIZE,
    NULL_ATTRIBUTE_VALUE,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import SegmentStore
from segment_service.metadata.boundary_tracker import indexed_bytes_min
from tests.support.event_index import Truth, records_of, settled
from tests.support.eventually import eventually

SEGMENT = "scope/stream/3.#epoch.1"
INDEX = SEGMENT + "#index"
TRANSACTION = f"{SEGMENT}#transaction.{1:032x}"
TRANSIENT = f"{SEGMENT}#transient.{1:032x}.{2:032x}"


class Writer:
    """Appends with event counts, and the truth about them."""

    def __init__(self, store: SegmentStore) -> None:
        self.store = store
        self.offsets = [0]
        self.events = [0]

    async def append(self, length: int, events: int, segment: str = SEGMENT) -> None:
        count = AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, events)
        end = await self._appended(segment, length, count)
        if segment == SEGMENT:
            self._ended(end, events)

    async def _appended(self, segment: str, length: int, count: AttributeUpdate) -> int:
        """Appends once the store takes it: ``Throttled`` ends as Tier 2 is written, which signals nothing."""
        end = -1

        async def taken() -> bool:
            nonlocal end
            try:
                end = await self.store.append(segment, [bytes(length)], [count])
            except Throttled:
                return False
            return True

        await eventually(taken, "an append")
        return end

    async def merge(self, source: str, events: int) -> None:
        self._ended((await self.store.merge(SEGMENT, source)).target_length, events)

    def _ended(self, end: int, events: int) -> None:
        self.offsets.append(end)
        self.events.append(self.events[-1] + events)

    @property
    def truth(self) -> Truth:
        return Truth(self.offsets, self.events)


class EventIndexContract:
    """A subclass gives the fixture ``store``."""

    @pytest.fixture
    async def writer(self, store: SegmentStore) -> Writer:
        await store.create_segment(SEGMENT)
        return Writer(store)

    async def test_an_index_segment_comes_and_goes_with_its_segment(self, store: SegmentStore) -> None:
        for _ in range(3):
            await store.create_segment(SEGMENT)
            info = await store.get_info(INDEX)
            assert (info.length, info.is_sealed) == (0, False)
            assert await store.get_attribute(INDEX, EXPECTED_INDEX_EVENT_SIZE) == index_record_bytes == 24
            writer = Writer(store)
            await writer.append(10, 1)
            writer.truth.check(await settled(store, SEGMENT))
            await store.delete(SEGMENT)
            with pytest.raises(SegmentNotFound):
                await store.get_info(INDEX)
            with pytest.raises(SegmentNotFound):
                await store.locate_offset(SEGMENT, 0)

    @pytest.mark.parametrize("name", ["s", "_system/_stream/0.#epoch.0", "scope/_MARKs/0.#epoch.0", TRANSACTION])
    async def test_other_segments_have_none(self, store: SegmentStore, name: str) -> None:
        await store.create_segment(name)
        await store.append(name, [bytes(1_000_000)])
        with pytest.raises(SegmentNotFound):
            await store.get_info(name + "#index")
        assert await store.locate_offset(name, 5) == 1_000_000

    async def test_records_are_boundaries_with_their_counts(self, store: SegmentStore, writer: Writer) -> None:
        rng = random.Random(5)
        for _ in range(60):
            events = rng.randrange(1, 50)
            await writer.append(events * rng.choice((10, 100, 2_000)), events)
        records = await settled(store, SEGMENT)
        writer.truth.check(records)
        assert len(records) >= writer.offsets[-1] // (indexed_bytes_min + 100_000)
        assert await store.get_attribute(INDEX, EVENT_COUNT) == writer.events[-1]

    async def test_located_offsets_are_the_nearest_known_boundaries(self, store: SegmentStore, writer: Writer) -> None:
        rng = random.Random(6)
        for _ in range(40):
            await writer.append(rng.choice((10_000, 70_000, 200_000)), 1)
        records = await settled(store, SEGMENT)
        length = writer.offsets[-1]
        for target in [0, 1, length - 1, length, length + 1, *(rng.randrange(length) for _ in range(100))]:
            located = await store.locate_offset(SEGMENT, target)
            assert located == next((record.length for record in records if record.length >= target), length)

    async def test_unindexed_ends_are_located_too(self, store: SegmentStore, writer: Writer) -> None:
        """The answer is a boundary at or behind the target, also where the index has no record yet."""
        assert await store.locate_offset(SEGMENT, 0) == await store.locate_offset(SEGMENT, 99) == 0
        for _ in range(20):
            await writer.append(50_000, 1)
            records = await records_of(store, SEGMENT)
            for target in (0, writer.offsets[-2], writer.offsets[-2] + 1, writer.offsets[-1]):
                writer.truth.check_located(records, target, await store.locate_offset(SEGMENT, target))

    async def test_negative_offsets_are_refused(self, store: SegmentStore, writer: Writer) -> None:
        with pytest.raises(InvalidArgument):
            await store.locate_offset(SEGMENT, -1)

    async def test_a_merge_brings_its_events_and_leaves_the_attribute_alone(
        self, store: SegmentStore, writer: Writer
    ) -> None:
        await writer.append(10, 2)
        for number, events in enumerate((3, 0, 5)):
            source = f"{SEGMENT}#transaction.{number:032x}"
            await store.create_segment(source)
            if events:
                await writer.append(events * 7, events, source)
            await writer.merge(source, events)
        records = await settled(store, SEGMENT)
        writer.truth.check(records)
        assert [record.length for record in records][-2:] == [10 + 3 * 7, 10 + 8 * 7]
        assert await store.get_attribute(SEGMENT, EVENT_COUNT) == 2
        assert await store.get_attribute(INDEX, EVENT_COUNT) == 10

    async def test_only_merges(self, store: SegmentStore, writer: Writer) -> None:
        await store.create_segment(TRANSACTION)
        await writer.append(100, 9, TRANSACTION)
        await writer.merge(TRANSACTION, 9)
        writer.truth.check(await settled(store, SEGMENT))
        assert await store.get_attribute(SEGMENT, EVENT_COUNT) == NULL_ATTRIBUTE_VALUE

    async def test_a_large_event_counts_once_also_inside_a_transaction(
        self, store: SegmentStore, writer: Writer
    ) -> None:
        await store.create_segment(TRANSACTION)
        await writer.append(10, 4, TRANSACTION)
        for target in (SEGMENT, TRANSACTION):
            await store.create_segment(TRANSIENT)
            for _ in range(3):
                await writer.append(100, 1, TRANSIENT)
            if target == SEGMENT:
                await writer.merge(TRANSIENT, 1)
            else:
                await store.merge(TRANSACTION, TRANSIENT)
        await writer.merge(TRANSACTION, 5)
        records = await settled(store, SEGMENT)
        writer.truth.check(records)
        assert records[-1].event_count == 6

    async def test_a_sealed_segment_gets_its_last_record(self, store: SegmentStore, writer: Writer) -> None:
        await writer.append(10, 1)
        await store.seal(SEGMENT)
        assert [record.length for record in await settled(store, SEGMENT)] == [10]
        assert not (await store.get_info(INDEX)).is_sealed

    async def test_truncation_keeps_the_record_at_or_below_the_start(self, store: SegmentStore, writer: Writer) -> None:
        for _ in range(30):
            await writer.append(100_000, 10)
        await settled(store, SEGMENT)
        for start in (1, 100_000, 1_234_567, 2_999_999, 3_000_000):
            await store.truncate(SEGMENT, start)
            await first_record_is(store, writer.truth, max(start // 100_000 * 100_000, 100_000))
            for target in (0, start, start + 1):
                located = await store.locate_offset(SEGMENT, target)
                assert located == min(-(-max(target, start) // 100_000) * 100_000, 3_000_000)
        await writer.append(5, 1)
        writer.truth.check(await settled(store, SEGMENT))


async def first_record_is(store: SegmentStore, truth: Truth, length: int) -> None:
    async def is_first() -> bool:
        records = await records_of(store, SEGMENT)
        truth.check(records)
        return records[0].length == length

    await eventually(is_first, f"a first record at {length}")
