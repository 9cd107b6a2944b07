"""Tables that are forgotten while calls of others, and their own, are under way: every answer is right."""

from __future__ import annotations

import asyncio
import random

import pytest

from segment_service.contracts.table_store import NOT_EXISTS, TableEntry, TableKey
from segment_service.tables import key_index, paged_index, paging
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps

tables_count = 4
workers = 6
steps = 40
keys_per_worker = 12


class Worker:
    """Changes keys of its own in all tables, each under the condition of the version that it must have."""

    def __init__(self, number: int, tables: TableExtension, rng: random.Random) -> None:
        self._number = number
        self._tables = tables
        self._rng = rng
        self.live: dict[tuple[str, bytes], tuple[bytes, int]] = {}

    async def run(self) -> None:
        for _ in range(steps):
            table = f"scope/table-{self._rng.randrange(tables_count)}"
            keys = [b"%d-%02d" % (self._number, one) for one in self._rng.sample(range(keys_per_worker), 3)]
            await self._rng.choice((self._put, self._put, self._remove, self._look, self._iterate))(table, keys)

    def version(self, table: str, key: bytes) -> int:
        return self.live.get((table, key), (b"", NOT_EXISTS))[1]

    async def _put(self, table: str, keys: list[bytes]) -> None:
        entries = [TableEntry(key, self._rng.randbytes(20), self.version(table, key)) for key in keys]
        versions = await self._tables.put(table, entries)
        for entry, version in zip(entries, versions, strict=True):
            self.live[table, entry.key] = entry.value, version

    async def _remove(self, table: str, keys: list[bytes]) -> None:
        present = [key for key in keys if (table, key) in self.live]
        if present:
            await self._tables.remove(table, [TableKey(key, self.version(table, key)) for key in present])
            for key in present:
                del self.live[table, key]

    async def _look(self, table: str, keys: list[bytes]) -> None:
        for key, found in zip(keys, await self._tables.get(table, keys), strict=True):
            assert (bytes(found.value), found.version) == self.live.get((table, key), (b"", NOT_EXISTS))

    async def _iterate(self, table: str, _: list[bytes]) -> None:
        mine, position = {}, b""
        while (page := await self._tables.iterate(table, 7, position)).entries:
            found = {one.key: bytes(one.value) for one in page.entries}
            mine.update({key: value for key, value in found.items() if key.startswith(b"%d-" % self._number)})
            position = page.continuation
        expected = {key: value for (name, key), (value, _) in self.live.items() if name == table}
        assert mine == expected


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_answers_are_right(seed: int, is_paged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "keys_in_memory_max", 10)
    monkeypatch.setattr(paged_index, "flush_keys", 5)
    monkeypatch.setattr(paged_index, "cached_keys_max", 8)
    rng = random.Random(seed)
    maps = await TableMaps().open() if is_paged else None
    one_key = key_index.key_memory_bytes
    tables = TableExtension(InMemorySegmentStore(), 100, maps, key_bytes_max=rng.choice((1, 20, 60)) * one_key)
    for number in range(tables_count):
        await tables.create_table(f"scope/table-{number}")
    everyone = [Worker(number, tables, random.Random(rng.random())) for number in range(workers)]
    await asyncio.gather(*(worker.run() for worker in everyone))
    assert tables.forgotten_total > 0
    for worker in everyone:
        await worker.run()
    assert tables.key_bytes == sum(table.counted_bytes for table in tables._tables.values())  # private: nothing leaks
