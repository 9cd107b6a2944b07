"""The compactor: a short log, the same content, the same versions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pravega_common.runtime.failpoints import arm, disarm_all, raise_on_hit
from segment_service.contracts.attributes import TABLE_INDEX_IN_TIER2, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_store import ReadResult
from segment_service.contracts.table_store import TableEntry, TableKey
from segment_service.tables import compactor, table_segment
from segment_service.tables.compactor import COPIED
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps

T = "scope/table"


async def churn(tables: TableExtension, rounds: int) -> None:
    for number in range(rounds):
        puts = [tables.put(T, [TableEntry(b"hot-%d" % key, b"%d" % number * 1_000)]) for key in range(5)]
        await asyncio.gather(*puts)


async def test_the_log_stays_short_and_versions_stay() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    cold = [TableEntry(b"cold-%d" % number, b"c" * 10_000) for number in range(40)]
    versions = await tables.put(T, cold)
    await tables.put(T, [TableEntry(b"gone", b"x")])
    await tables.remove(T, [TableKey(b"gone")])
    await churn(tables, 1_500)
    info = await tables.table_info(T)
    assert info.start_offset > 0
    live = 40 * 10_000 + 5 * 4_000
    assert info.length - info.start_offset < max(2 * live, table_segment.compaction_bytes_min) + 600_000
    before = await tables.get(T, [entry.key for entry in cold] + [b"gone"])
    assert [entry.version for entry in before[:-1]] == versions
    assert before[-1].version == -1
    again = TableExtension(store)
    assert await again.get(T, [entry.key for entry in cold] + [b"gone"]) == before
    assert (await again.table_info(T)).entry_count == 45
    await again.put(T, [TableEntry(b"cold-0", b"now", versions[0])])
    page = await again.delta(T, 0, 100)
    assert page.should_clear
    assert {entry.key for entry in page.entries} == {entry.key for entry in cold} | {b"hot-%d" % n for n in range(5)}


async def test_a_crash_between_copy_and_truncation_reads_the_same() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    await tables.put(T, [TableEntry(b"cold", b"c" * 1_000)])
    arm(COPIED, raise_on_hit(COPIED, 1))
    try:
        await churn(tables, 300)
    finally:
        disarm_all()
    again = TableExtension(store)
    assert (await again.iterate(T, 100)).entries == (await tables.iterate(T, 100)).entries
    assert (await again.get(T, [b"cold"]))[0].version == 0


async def test_updates_that_meet_a_compaction_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_segment, "compaction_bytes_min", 2_000)
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    counts = dict.fromkeys(range(20), 0)

    async def writer(key: int) -> None:
        for number in range(200):
            [now] = await tables.get(T, [b"%d" % key])
            await tables.put(T, [TableEntry(b"%d" % key, b"%d" % number, now.version)])
            counts[key] = number

    await asyncio.gather(*(writer(key) for key in counts))
    info = await tables.table_info(T)
    assert info.start_offset > 0
    for tables_ in (tables, TableExtension(store)):
        entries = await tables_.get(T, [b"%d" % key for key in counts])
        assert [entry.value for entry in entries] == [b"199"] * 20


async def test_a_round_copies_a_limited_part_of_a_table_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in a set are all in the keys: what a round copies is counted with them."""
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    names = [b"%04d" % number + b"n" * 1_000 for number in range(2_000)]
    for first in range(0, len(names), 100):
        await tables.put(T, [TableEntry(name, b"") for name in names[first : first + 100]])
    longest, append = 0, store.append

    def noting(segment: str, data: Sequence[Buffer], *args: Any, **options: Any) -> asyncio.Future[int]:
        nonlocal longest
        longest = max(longest, sum(map(len, data)))
        return append(segment, data, *args, **options)

    monkeypatch.setattr(store, "append", noting)
    await churn(tables, 1_500)
    info = await tables.table_info(T)
    assert info.start_offset > 0
    size = record_size(len(names[0]), 0)
    assert longest <= compactor.compaction_copy_bytes_max + size
    found = await tables.get(T, names[::4])
    assert [entry.version for entry in found] == [number * size for number in range(0, 2_000, 4)]


@pytest.mark.parametrize("is_paged", [False, True])
async def test_a_head_that_goes_while_the_log_is_read_again_is_no_error(is_paged: bool) -> None:
    """A compactor that waited for values cuts the log of a table which was forgotten meanwhile, and is read again."""

    class CuttingStore(InMemorySegmentStore):
        cut_to = 0

        async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
            end, self.cut_to = self.cut_to, 0
            if end:
                await self.truncate(segment, end)
            return await super().read(segment, offset, length_max)

    store = CuttingStore()
    maps = await TableMaps().open() if is_paged else None
    tables = TableExtension(store, maps=maps)
    await tables.create_table(T)
    if is_paged:
        await store.update_attributes(T, (AttributeUpdate(TABLE_INDEX_IN_TIER2, AttributeUpdateType.REPLACE, 1),))
    await tables.put(T, [TableEntry(b"key", b"before")])
    store.cut_to = (await store.get_info(T)).length
    await tables.put(T, [TableEntry(b"key", b"after")])
    tables._forget(tables._tables[T])
    [found] = await tables.get(T, [b"key"])
    assert found.value == b"after"
    assert (await tables.table_info(T)).start_offset > 0
