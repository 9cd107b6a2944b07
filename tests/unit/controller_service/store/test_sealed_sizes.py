"""Sizes of replaced segments: a small record each, found by the creation epoch in its key, read a thousand at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller_service.store.epochs import initial_epoch, next_epoch, plan_scale
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import EpochRecord, SealedSegmentRecord, sealed_segment_key
from controller_service.store.serializer import encode
from controller_service.store.stream_context import StreamContext, keys_per_read_max
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ABSENT, Put, Versioned
from pravega_common.names import segment_epoch, segment_id
from tests.support.fakes.clock import ManualClock

SEGMENTS = 2_500
record_bytes_max = 64


class CountingTables(InMemoryVersionedStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        self.reads += 1
        return await super().get_many(table, keys)


@pytest.mark.parametrize("per_epoch", [1, 10, SEGMENTS])
async def test_reading_sizes_costs_the_same_however_many_epochs_they_are_from(per_epoch: int) -> None:
    tables = CountingTables()
    context = StreamContext(StreamStore(tables, ManualClock(), lambda: "id"), "scope", "stream", "1")
    await tables.create_table(context.metadata_table)
    sizes = {segment_id(number, number // per_epoch): number for number in range(SEGMENTS)}
    puts = [
        Put(sealed_segment_key(item).name, encode(SealedSegmentRecord(segment_epoch(item) + 1, size)), ABSENT)
        for item, size in sizes.items()
    ]
    assert max(len(put.value) for put in puts) <= record_bytes_max
    await tables.put_many(context.metadata_table, puts)
    tables.reads = 0
    found = await context.stored_sealed(list(sizes))
    assert {identifier: record.size for identifier, record in found.items()} == sizes
    assert tables.reads == -(-SEGMENTS // keys_per_read_max)


def test_a_scale_writes_the_records_of_what_it_replaces_and_no_others() -> None:
    """With maps of many segments, each scale would write the map of its segments' creation epochs anew."""
    epoch: EpochRecord = initial_epoch(0, 1_000, 0)
    written: list[int] = []
    for _ in range(50):
        replaced = epoch.segments[-1]
        ranges = [(replaced.key_start, replaced.key_end)]
        plan = plan_scale(epoch, [replaced.segment_id], ranges, 1, epoch.created_ms + 1)
        following = next_epoch(epoch, plan)
        gone = set(epoch.segment_ids) - set(following.segment_ids)
        records = {sealed_segment_key(item): SealedSegmentRecord(following.epoch, 1_000_000) for item in gone}
        written.append(sum(len(key.name) + len(encode(record)) for key, record in records.items()))
        epoch = following
    assert max(written) <= 2 * record_bytes_max
