"""Reads a table segment: its log into the index, and single values."""

from __future__ import annotations

import asyncio
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.segment_store import SegmentStore, read_bytes_max
from segment_service.tables.entry_serializer import parse_records, record_bytes_max, value_offset
from segment_service.tables.key_index import Slot
from segment_service.tables.table_segment import TableSegment

log_read_bytes: Final = 512 * 1024
"""Bytes of log that are read at a time."""
records_per_turn: Final = 500
"""Records that are parsed in one turn of the event loop: two or three milliseconds."""
value_reads_in_flight_max: Final = 16
"""Values that one request reads from the segment at a time."""


async def read_exactly(store: SegmentStore, segment: str, offset: int, length: int) -> bytes:
    """Bytes that are known to be there. ``SegmentTruncated`` if they were truncated meanwhile."""
    views: list[memoryview] = []
    end = offset + length
    while offset < end:
        result = await store.read(segment, offset, min(read_bytes_max, end - offset))
        if not result.length:
            raise DataCorruption(f"{segment}: no bytes at {offset}, though the segment has them")
        views.extend(result.data)
        offset += result.length
    return b"".join(views)


async def read_log(store: SegmentStore, table: TableSegment, length: int) -> None:
    """Bring the index up to a log of ``length`` bytes; ``table`` must be stale and have nothing pending."""
    unfinished = b""
    while table.indexed_to < length:
        position = table.indexed_to + len(unfinished)
        data = unfinished + await read_exactly(store, table.name, position, min(log_read_bytes, length - position))
        data_start = table.indexed_to
        for number, record in enumerate(parse_records(data, data_start), 1):
            if record.value is None:
                table.index.remove(record.key)
            else:
                table.index.put(record.key, record.value, record.version, record.offset)
            table.indexed_to = record.offset + record.size
            if number % records_per_turn == 0:
                await asyncio.sleep(0)
        unfinished = data[table.indexed_to - data_start :]
        is_last = table.indexed_to + len(unfinished) >= length
        if unfinished and (is_last or len(unfinished) >= record_bytes_max):
            raise DataCorruption(f"{table.name}: the record at offset {table.indexed_to} never ends")
        await asyncio.sleep(0)


async def read_values(store: SegmentStore, segment: str, found: list[tuple[bytes, Slot]]) -> list[bytes]:
    """The value of each (key, slot): from memory where it is kept, else from the segment."""
    slots = asyncio.Semaphore(value_reads_in_flight_max)

    async def read(key: bytes, slot: Slot) -> bytes:
        async with slots:
            return await read_exactly(store, segment, value_offset(slot.offset, len(key)), slot.value_length)

    values: list[bytes | None] = [slot.value for _, slot in found]
    missing = [position for position, value in enumerate(values) if value is None]
    fetched = await asyncio.gather(*(read(*found[position]) for position in missing))
    for position, value in zip(missing, fetched, strict=True):
        values[position] = value
    return [value for value in values if value is not None]
