"""Selects the entries that a delta read answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.table_limits import page_bytes_max, page_entries_max
from segment_service.contracts.segment_store import SegmentStore
from segment_service.tables.entry_serializer import TableRecord, record_size
from segment_service.tables.key_index import KeyIndex, Slot
from segment_service.tables.log_reader import read_records
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_segment import TableSegment


@dataclass(frozen=True, slots=True)
class DeltaSelection:
    """The entries of a delta read."""

    entries: list[tuple[bytes, Slot]]
    should_clear: bool
    reached_end: bool
    last_position: int


def select_delta(index: KeyIndex, start_offset: int, length: int, from_position: int, count_max: int) -> DeltaSelection:
    """Live entries whose record lies at or after ``from_position``, in log order, up to ``count_max`` or a page.

    The page counts live entries, not log records, and is empty only if nothing live follows: a client stops at the
    first empty page (docs/wire-protocol.md 8.1). An entry that a later put replaced appears once, where the later one
    lies, so walking the pages gives every live entry exactly once. ``last_position`` is 0 if nothing was consumed.
    """
    should_clear = from_position < start_offset
    position = max(from_position, start_offset)
    if position >= length:
        return DeltaSelection([], should_clear, True, 0)
    entries: list[tuple[bytes, Slot]] = []
    page_bytes = 0
    for key, slot in index.live_from(position):
        if len(entries) >= min(count_max, page_entries_max) or page_bytes >= page_bytes_max:
            return DeltaSelection(entries, should_clear, False, position)
        entries.append((key, slot))
        size = record_size(len(key), slot.value_length)
        page_bytes += size
        position = slot.offset + size
    return DeltaSelection(entries, should_clear, True, length)


async def select_delta_from_log(
    store: SegmentStore, table: TableSegment, index: PagedKeyIndex, from_position: int, count_max: int
) -> DeltaSelection | None:
    """As ``select_delta``, of the table's log: it is read, and the index says which records live. ``None`` if the index
    was cleared meanwhile; ``SegmentTruncated`` if the compactor came first, ``SegmentNotFound`` if a deletion did,
    ``InvalidArgument`` if ``from_position`` is not the start of a record."""
    start_offset = table.start_offset
    should_clear = from_position < start_offset
    position = read_to = max(from_position, start_offset)
    if position >= table.indexed_to:
        return DeltaSelection([], should_clear, True, 0)
    entries: list[tuple[bytes, Slot]] = []
    page_bytes = 0
    is_start = from_position <= start_offset
    # What lived may have moved to the tail while the log was read: the reader would stop at a page without it.
    while not entries and read_to < (length := table.indexed_to):
        async with aclosing(read_records(store, table, read_to, length)) as parts:
            while records := await _next(parts, table, from_position, is_start=is_start or bool(entries)):
                live = await index.find([record.key for record in records])
                if live is None:
                    return None
                for record in records:
                    slot = live.get(record.key)
                    if slot is None or slot.offset != record.offset:
                        continue
                    if len(entries) >= min(count_max, page_entries_max) or page_bytes >= page_bytes_max:
                        return DeltaSelection(entries, should_clear, False, position)
                    entries.append((record.key, slot))
                    page_bytes += record.size
                    position = record.offset + record.size
        read_to, is_start = length, True
    return DeltaSelection(entries, should_clear, True, read_to)


async def _next(
    parts: AsyncGenerator[list[TableRecord]], table: TableSegment, from_position: int, *, is_start: bool
) -> list[TableRecord]:
    """The next records, empty at the end. ``is_start``: they were read from the start of a record, as one that the
    index knows was among them; else bytes that are no record are taken to be the inside of one."""
    try:
        return await anext(parts, [])
    except DataCorruption as error:
        if is_start:
            raise
        raise InvalidArgument(
            f"{table.name}: no record begins at {from_position}; a delta is read from 0, or from the last position of "
            "the page before"
        ) from error
