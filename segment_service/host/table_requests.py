"""Serves requests about table segments (docs/wire-protocol.md 2.2) through the table store."""

from __future__ import annotations

from collections.abc import Iterable

from pravega_common.errors import InvalidArgument
from pravega_common.model.table_limits import check_fixed_key_length
from pravega_common.wire.commands import (
    Command,
    CreateTableSegment,
    DeleteTableSegment,
    GetTableSegmentInfo,
    ReadTable,
    ReadTableEntries,
    ReadTableEntriesDelta,
    ReadTableKeys,
    RemoveTableKeys,
    SegmentCreated,
    SegmentDeleted,
    TableEntriesDeltaRead,
    TableEntriesRead,
    TableEntriesUpdated,
    TableKeysRead,
    TableKeysRemoved,
    TableRead,
    TableSegmentInfo,
    UpdateTableEntries,
    WireTableEntry,
    WireTableKey,
)
from pravega_common.wire.errors import WireProtocolError
from segment_service.contracts.table_store import EntriesPage, TableEntry, TableKey, TableStore


def _wire_entries(entries: Iterable[TableEntry]) -> tuple[WireTableEntry, ...]:
    return tuple(WireTableEntry(WireTableKey(entry.key, entry.version), entry.value) for entry in entries)


class TableRequests:
    """One method per command; errors are those of ``TableStore``."""

    def __init__(self, tables: TableStore) -> None:
        self._tables = tables

    async def create(self, request: CreateTableSegment) -> Command:
        try:
            check_fixed_key_length(request.segment, request.key_length)
        except InvalidArgument as error:  # As the real store does.
            raise WireProtocolError("CreateTableSegment", str(error)) from error
        await self._tables.create_table(request.segment, request.key_length, max(request.rollover_size_bytes, 0))
        return SegmentCreated(request.request_id, request.segment)

    async def delete(self, request: DeleteTableSegment) -> Command:
        await self._tables.delete_table(request.segment, request.must_be_empty)
        return SegmentDeleted(request.request_id, request.segment)

    async def info(self, request: GetTableSegmentInfo) -> Command:
        info = await self._tables.table_info(request.segment)
        return TableSegmentInfo(
            request.request_id, request.segment, info.start_offset, info.length, info.entry_count, info.key_length
        )

    async def update(self, request: UpdateTableEntries) -> Command:
        entries = [TableEntry(item.key.key, bytes(item.value), item.key.version) for item in request.entries]
        versions = await self._tables.put(request.segment, entries, expected_length=request.table_segment_offset)
        return TableEntriesUpdated(request.request_id, tuple(versions))

    async def remove(self, request: RemoveTableKeys) -> Command:
        keys = [TableKey(item.key, item.version) for item in request.keys]
        await self._tables.remove(request.segment, keys, expected_length=request.table_segment_offset)
        return TableKeysRemoved(request.request_id, request.segment)

    async def read(self, request: ReadTable) -> Command:
        entries = await self._tables.get(request.segment, [item.key for item in request.keys])
        return TableRead(request.request_id, request.segment, _wire_entries(entries))

    async def read_keys(self, request: ReadTableKeys) -> Command:
        page = await self._page(request, request.suggested_key_count)
        keys = tuple(WireTableKey(entry.key, entry.version) for entry in page.entries)
        return TableKeysRead(request.request_id, request.segment, keys, page.continuation if keys else b"")

    async def read_entries(self, request: ReadTableEntries) -> Command:
        page = await self._page(request, request.suggested_entry_count)
        token = page.continuation if page.entries else b""
        return TableEntriesRead(request.request_id, request.segment, _wire_entries(page.entries), token)

    async def read_delta(self, request: ReadTableEntriesDelta) -> Command:
        page = await self._tables.delta(request.segment, request.from_position, max(request.suggested_entry_count, 1))
        return TableEntriesDeltaRead(
            request.request_id,
            request.segment,
            _wire_entries(page.entries),
            page.should_clear,
            page.reached_end,
            page.last_position,
        )

    async def _page(self, request: ReadTableKeys | ReadTableEntries, count: int) -> EntriesPage:
        return await self._tables.iterate(
            request.segment, max(count, 1), request.continuation_token, request.from_key, request.to_key
        )
