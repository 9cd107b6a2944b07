"""Keeps a table's log short: copies live records from its head to its tail, then truncates the head."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.segment_store import SegmentStore
from segment_service.tables.entry_serializer import record_size
from segment_service.tables.key_index import KeyIndex, Slot
from segment_service.tables.log_reader import read_records, read_values
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_segment import TableSegment, Update
from segment_service.tables.writer import append_batch

COPIED = register("tables.compactor.copied")

compaction_copy_bytes_max: Final = 256 * 1024
"""Live bytes that one round copies, of whole records: keys without values are bytes, too. The last record may go
beyond."""
compaction_read_bytes_max: Final = 8 * 1024 * 1024
"""Bytes of log that one round reads to find them, in a table whose index is in Tier 2."""


async def compact(store: SegmentStore, table: TableSegment) -> None:
    """One round, paid for by the update that made it due. A copy keeps its version and is added like any update,
    behind what is pending, so an update that comes meanwhile lies behind the copy and wins. The head is truncated
    only once Tier 2 has the copies, maybe by a later update: a crash in between leaves records twice, which reads the
    same, and a restore from Tier 2 alone loses no entry for one that came later. Errors mean that another round will do
    it: nothing is lost by not compacting."""
    is_due = table.wants_compaction
    if table.is_compacting or not (is_due or table.cuts):
        return
    table.is_compacting = True
    try:
        if is_due:
            await _copy_head(store, table)
        await _cut(store, table)
    except PravegaError:
        return
    finally:
        table.is_compacting = False


async def _copy_head(store: SegmentStore, table: TableSegment) -> None:
    """Copy the live records of the head to the tail, durably."""
    index = table.index
    if isinstance(index, PagedKeyIndex):
        taken, values, end = await _select_from_log(store, table, index)
    else:
        taken, end = _select(table, index)
        values = await read_values(store, table, taken)
    await table.index.bring([key for key, _ in taken])
    if table.is_stale or not table.index.is_resident(key for key, _ in taken):
        return
    updates, end = _still_live(table, taken, values, end)
    length = table.indexed_to
    if updates:
        batch = append_batch(store, table, updates)
        length = batch.offset + batch.size
        await asyncio.shield(batch.done)
    failpoint(COPIED)
    if end > table.compacted_to:
        table.compacted(end, length)


async def _cut(store: SegmentStore, table: TableSegment) -> None:
    """Truncate the head as far as Tier 2 has all that took its place."""
    info = await store.get_info(table.name)
    stored = list(itertools.takewhile(lambda cut: cut[1] <= info.storage_length, table.cuts))
    if info.segment_id != table.segment_id or not stored:
        return
    end, _ = stored[-1]
    await store.truncate(table.name, end)
    table.start_offset = max(table.start_offset, end)
    for _ in stored:
        table.cuts.popleft()


def _select(table: TableSegment, index: KeyIndex) -> tuple[list[tuple[bytes, Slot]], int]:
    """The live records of the head, and the first offset behind them that must stay."""
    taken: list[tuple[bytes, Slot]] = []
    copied = 0
    for key, slot in index.live_from(table.compacted_to):
        if copied >= compaction_copy_bytes_max:
            return taken, slot.offset
        taken.append((key, slot))
        copied += record_size(len(key), slot.value_length)
    return taken, table.indexed_to


async def _select_from_log(
    store: SegmentStore, table: TableSegment, index: PagedKeyIndex
) -> tuple[list[tuple[bytes, Slot]], list[bytes], int]:
    """As ``_select``, with the values, of what the map in Tier 2 covers: a restart reads what lies behind it."""
    taken: list[tuple[bytes, Slot]] = []
    values: list[bytes] = []
    start = end = table.compacted_to
    copied = 0
    async with aclosing(read_records(store, table, start, min(index.covered, table.indexed_to))) as parts:
        async for records in parts:
            live = await index.find([record.key for record in records])
            if live is None:
                return [], [], start
            for record in records:
                if copied >= compaction_copy_bytes_max or end - start >= compaction_read_bytes_max:
                    return taken, values, end
                end = record.offset + record.size
                slot = live.get(record.key)
                if slot is not None and slot.offset == record.offset and record.value is not None:
                    taken.append((record.key, slot))
                    values.append(bytes(record.value))
                    copied += record.size
    return taken, values, end


def _still_live(
    table: TableSegment, taken: list[tuple[bytes, Slot]], values: list[bytes], end: int
) -> tuple[list[Update], int]:
    """The copies to write now, and where the log may begin after them. What was replaced meanwhile needs none: its
    newer record lies behind ``end``. A record with a pending update is live only if that fails, and a copy would lie
    behind the update: the head ends before it."""
    updates: list[Update] = []
    for (key, slot), value in zip(taken, values, strict=True):
        live = table.index.get(key)
        if live is None or live.offset != slot.offset:
            continue
        if table.pending_batch(key) is not None:
            return updates, slot.offset
        updates.append(Update(key, value, slot.version))
    return updates, end
