"""A table that is deleted and made again while its log is read: nothing is read of the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from segment_service.contracts.segment_store import ReadResult
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry
from segment_service.tables import log_reader
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore

T = "scope/table"
KEYS = [b"key-%02d" % number for number in range(40)]
wait_max_s = 5.0
"""Far longer than a call takes that does not hang."""


class SlowStore(InMemorySegmentStore):
    """Does something else while the first reads are on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.during_read: Callable[[], Awaitable[object]] | None = None
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        result = await super().read(segment, offset, length_max)
        during, self.during_read = self.during_read, None
        if during is not None:
            self.may_return.clear()
            await during()
            self.may_return.set()
        await self.may_return.wait()
        return result


async def made(store: SlowStore) -> TableExtension:
    tables = TableExtension(store)
    await tables.create_table(T)
    await tables.put(T, [TableEntry(key, b"v" * 5_000) for key in KEYS])  # too long for memory
    return tables


async def make_again(tables: TableExtension, count: int) -> None:
    await tables.delete_table(T, must_be_empty=False)
    await tables.create_table(T)
    if count:
        await tables.put(T, [TableEntry(b"new" + key, b"w" * 5_000) for key in KEYS[:count]])


@pytest.mark.parametrize("count", [0, 1, 40])
async def test_values_are_those_of_the_table_that_is_there(count: int) -> None:
    store = SlowStore()
    tables = await made(store)

    store.during_read = lambda: make_again(tables, count)
    async with asyncio.timeout(wait_max_s):
        found = await tables.get(T, KEYS)
    assert found == [TableEntry(key, b"", NOT_EXISTS) for key in KEYS]


@pytest.mark.parametrize("count", [0, 1, 40])
async def test_a_log_is_read_on_as_that_of_the_table_that_is_there(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "log_read_bytes", 20_000)
    store = SlowStore()
    await made(store)
    tables = TableExtension(store)

    store.during_read = lambda: make_again(TableExtension(store), count)
    async with asyncio.timeout(wait_max_s):
        info = await tables.table_info(T)
    assert info.entry_count == count
