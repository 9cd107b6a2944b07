"""Reads a table segment: its log into the index, and single values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import islice
from typing import Final

from pravega_common.errors import DataCorruption, SegmentNotFound
from pravega_common.runtime.joined import each_ended
from segment_service.contracts.segment_store import SegmentStore, read_bytes_max
from segment_service.tables.entry_serializer import TableRecord, parse_records, record_bytes_max, value_offset
from segment_service.tables.key_index import Slot
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_segment import TableSegment

log_read_bytes: Final = 512 * 1024
"""Bytes of log that are read at a time."""
records_per_turn: Final = 500
"""Records that are parsed in one turn of the event loop: two or three milliseconds."""
value_reads_in_flight_max: Final = 16
"""Values that one request reads from the segment at a time."""


async def read_exactly(store: SegmentStore, table: TableSegment, offset: int, length: int) -> bytes:
    """Bytes that are known to be there. ``SegmentTruncated``, ``SegmentNotFound`` if they were truncated, or deleted,
    meanwhile: a segment that was made again would give bytes of another table, or let the read wait at its end."""
    views: list[memoryview] = []
    end = offset + length
    while offset < end:
        if (await store.get_info(table.name)).segment_id != table.segment_id:
            raise SegmentNotFound(table.name)
        result = await store.read(table.name, offset, min(read_bytes_max, end - offset))
        if not result.length:
            raise DataCorruption(f"{table.name}: no bytes at {offset}, though the segment has them")
        views.extend(result.data)
        offset += result.length
    return b"".join(views)


async def read_records(
    store: SegmentStore, table: TableSegment, offset: int, end: int
) -> AsyncGenerator[list[TableRecord]]:
    """The records from the start of one at ``offset`` to the end of one at ``end``, some at a time, in turns of the
    event loop. Errors as ``read_exactly``."""
    unfinished = b""
    while offset < end:
        position = offset + len(unfinished)
        data = unfinished + await read_exactly(store, table, position, min(log_read_bytes, end - position))
        data_start = offset
        records = parse_records(data, data_start)
        while some := list(islice(records, records_per_turn)):
            offset = some[-1].offset + some[-1].size
            yield some
            await asyncio.sleep(0)
        unfinished = data[offset - data_start :]
        is_last = offset + len(unfinished) >= end
        if unfinished and (is_last or len(unfinished) >= record_bytes_max):
            raise DataCorruption(f"{table.name}: the record at offset {offset} never ends")


async def read_log(
    store: SegmentStore, table: TableSegment, length: int, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Bring the index up to a log of ``length`` bytes, or to where it should stop; ``table`` must be stale and have
    nothing pending."""
    index = table.index
    async with aclosing(read_records(store, table, table.indexed_to, length)) as parts:
        async for records in parts:
            if isinstance(index, PagedKeyIndex) and index.is_full(0):
                await index.flush(lambda: table.indexed_to)
            await index.bring([record.key for record in records])
            if isinstance(index, PagedKeyIndex) and index.is_cleared:
                return
            for record in records:
                if record.value is None:
                    index.remove(record.key)
                else:
                    index.put(record.key, record.value, record.version, record.offset)
            table.indexed_to = records[-1].offset + records[-1].size
            if should_stop():
                return


async def read_values(store: SegmentStore, table: TableSegment, found: list[tuple[bytes, Slot]]) -> list[bytes]:
    """The value of each (key, slot): from memory where it is kept, else from the segment."""

    async def read(position: int) -> bytes:
        key, slot = found[position]
        return await read_exactly(store, table, value_offset(slot.offset, len(key)), slot.value_length)

    values: list[bytes | None] = [slot.value for _, slot in found]
    missing = [position for position, value in enumerate(values) if value is None]
    fetched = await each_ended(read, missing, at_once=value_reads_in_flight_max)
    for position, value in zip(missing, fetched, strict=True):
        values[position] = value
    return [value for value in values if value is not None]
