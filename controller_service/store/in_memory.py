"""``VersionedStore`` in memory, for tests, the simulator and the memory profile. Nothing survives the process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Page, Put, Versioned
from pravega_common.errors import SegmentNotFound, VersionConflict


class InMemoryVersionedStore:
    """Tables as dictionaries. Versions are never reused, also not after a removal or a re-creation of the table."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Versioned]] = {}
        self._versions = itertools.count()

    async def create_table(self, table: str) -> None:
        self._tables.setdefault(table, {})

    async def delete_table(self, table: str) -> None:
        self._tables.pop(table, None)

    async def get(self, table: str, key: str) -> Versioned | None:
        return self._table(table).get(key)

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        entries = self._table(table)
        return [entries.get(key) for key in keys]

    async def put(self, table: str, key: str, value: bytes, expected: int) -> int:
        return (await self.put_many(table, [Put(key, value, expected)]))[0]

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        entries = self._table(table)
        for put in puts:
            self._expect(table, put.key, put.expected)
        versions = [next(self._versions) for _ in puts]
        for put, version in zip(puts, versions, strict=True):
            entries[put.key] = Versioned(put.value, version)
        return versions

    async def remove(self, table: str, key: str, expected: int = ANY_VERSION) -> None:
        entries = self._table(table)
        self._expect(table, key, expected)
        entries.pop(key, None)

    async def remove_many(self, table: str, keys: Sequence[str]) -> None:
        entries = self._table(table)
        for key in keys:
            entries.pop(key, None)

    async def scan(self, table: str, continuation: bytes = b"", count_max: int = 100) -> Page:
        after = continuation.decode()
        keys = sorted(key for key in self._table(table) if key > after)
        page = keys[:count_max]
        entries = tuple((key, self._tables[table][key]) for key in page)
        return Page(entries, page[-1].encode() if len(keys) > count_max else b"")

    def _table(self, table: str) -> dict[str, Versioned]:
        entries = self._tables.get(table)
        if entries is None:
            raise SegmentNotFound(table)
        return entries

    def _expect(self, table: str, key: str, expected: int) -> None:
        if expected == ANY_VERSION:
            return
        found = self._table(table).get(key)
        version = ABSENT if found is None else found.version
        if version != expected:
            raise VersionConflict(f"{table}: {key!r} has version {version}, expected {expected}")
