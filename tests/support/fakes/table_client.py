"""Calls the fake table store as a ``TableClient`` calls a real one, without a wire."""

from __future__ import annotations

from collections.abc import Sequence

from pravega_common.errors import SegmentExists, SegmentNotFound
from pravega_streams.table.table_client import TableItem
from segment_service.contracts.table_store import TableEntry, TableKey
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore


class InMemoryTableClient:
    """The part of ``TableClient`` that a ``TableVersionedStore`` uses, with the fake store's limits and answers."""

    def __init__(self) -> None:
        self._store = InMemoryTableStore(InMemorySegmentStore())

    async def create(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> bool:
        try:
            await self._store.create_table(segment, key_length, rollover_size_bytes)
        except SegmentExists:
            return False
        return True

    async def delete(self, segment: str, must_be_empty: bool = False) -> bool:
        try:
            await self._store.delete_table(segment, must_be_empty)
        except SegmentNotFound:
            return False
        return True

    async def put(self, segment: str, items: Sequence[TableItem]) -> list[int]:
        return await self._store.put(segment, [TableEntry(item.key, item.value, item.version) for item in items])

    async def remove(self, segment: str, keys: Sequence[tuple[bytes, int]]) -> None:
        await self._store.remove(segment, [TableKey(key, version) for key, version in keys])

    async def get(self, segment: str, keys: Sequence[bytes]) -> list[TableItem]:
        return [TableItem(entry.key, entry.value, entry.version) for entry in await self._store.get(segment, keys)]

    async def page(self, segment: str, continuation: bytes, count_max: int) -> tuple[list[TableItem], bytes]:
        page = await self._store.iterate(segment, count_max, continuation)
        items = [TableItem(entry.key, entry.value, entry.version) for entry in page.entries]
        return items, page.continuation
