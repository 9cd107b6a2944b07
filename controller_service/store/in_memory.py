"""Keeps a ``VersionedStore`` in memory, for tests and ``store = "memory"``. Nothing survives the process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Page, Put, Versioned
from pravega_common.errors import SegmentNotFound, VersionConflict
from pravega_common.model.table_limits import check_key_length, check_update, check_value_length, entry_wire_bytes


class InMemoryVersionedStore:
    """Tables as dictionaries, with the limits of table segments. Versions are never reused, also not after a removal
    or a re-creation of the table."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Versioned]] = {}
        self._versions = itertools.count()

    async def create_table(self, table: str) -> None:
        self._tables.setdefault(table, {})

    async def delete_table(self, table: str) -> None:
        self._tables.pop(table, None)

    async def get(self, table: str, key: str) -> Versioned | None:
        return (await self.get_many(table, [key]))[0]

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        _check_keys(table, keys)
        entries = self._table(table)
        return [entries.get(key) for key in keys]

    async def put(self, table: str, key: str, value: bytes, expected: int) -> int:
        return (await self.put_many(table, [Put(key, value, expected)]))[0]

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        _check_puts(table, puts)
        entries = self._table(table)
        for put in puts:
            self._expect(table, put.key, put.expected)
        versions = [next(self._versions) for _ in puts]
        for put, version in zip(puts, versions, strict=True):
            entries[put.key] = Versioned(put.value, version)
        return versions

    async def remove(self, table: str, key: str, expected: int = ANY_VERSION) -> None:
        _check_keys(table, [key])
        entries = self._table(table)
        self._expect(table, key, expected)
        entries.pop(key, None)

    async def remove_many(self, table: str, keys: Sequence[str]) -> None:
        _check_keys(table, keys)
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


def _check_keys(table: str, keys: Sequence[str]) -> None:
    for key in keys:
        check_key_length(table, len(key.encode()))


def _check_puts(table: str, puts: Sequence[Put]) -> None:
    _check_keys(table, [put.key for put in puts])
    for put in puts:
        check_value_length(table, len(put.value))
    check_update(table, len(puts), sum(entry_wire_bytes(len(put.key.encode()), len(put.value)) for put in puts))
