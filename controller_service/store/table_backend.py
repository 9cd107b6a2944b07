"""``VersionedStore`` on hash table segments of the cluster itself, under ``_system/_tables/``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Page, Put, Versioned
from pravega_common.errors import BadKeyVersion, KeyNotFound, VersionConflict
from pravega_streams.table.table_client import NO_VERSION, NOT_EXISTS, TableClient, TableItem

TABLES_PREFIX: Final = "_system/_tables/"


def _to_wire(expected: int) -> int:
    if expected == ANY_VERSION:
        return NO_VERSION
    return NOT_EXISTS if expected == ABSENT else expected


class TableVersionedStore:
    """Versions are those of the table segment. Not conditional means ``NO_VERSION`` on the wire."""

    def __init__(self, client: TableClient) -> None:
        self._client = client

    async def create_table(self, table: str) -> None:
        await self._client.create(TABLES_PREFIX + table)

    async def delete_table(self, table: str) -> None:
        await self._client.delete(TABLES_PREFIX + table)

    async def get(self, table: str, key: str) -> Versioned | None:
        return (await self.get_many(table, [key]))[0]

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        if not keys:
            return []
        items = await self._client.get(TABLES_PREFIX + table, [key.encode() for key in keys])
        return [None if item.version == NOT_EXISTS else Versioned(item.value, item.version) for item in items]

    async def put(self, table: str, key: str, value: bytes, expected: int) -> int:
        return (await self.put_many(table, [Put(key, value, expected)]))[0]

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        items = [TableItem(put.key.encode(), put.value, _to_wire(put.expected)) for put in puts]
        try:
            return await self._client.put(TABLES_PREFIX + table, items)
        except (BadKeyVersion, KeyNotFound) as error:
            raise VersionConflict(f"{table}: {error}") from error

    async def remove(self, table: str, key: str, expected: int = ANY_VERSION) -> None:
        try:
            await self._client.remove(TABLES_PREFIX + table, [(key.encode(), _to_wire(expected))])
        except KeyNotFound as error:
            if expected not in (ANY_VERSION, ABSENT):
                raise VersionConflict(f"{table}: {error}") from error
        except BadKeyVersion as error:
            raise VersionConflict(f"{table}: {error}") from error

    async def remove_many(self, table: str, keys: Sequence[str]) -> None:
        if keys:
            await self._client.remove(TABLES_PREFIX + table, [(key.encode(), NO_VERSION) for key in keys])

    async def scan(self, table: str, continuation: bytes = b"", count_max: int = 100) -> Page:
        items, token = await self._client.page(TABLES_PREFIX + table, continuation, count_max)
        # The store ends a scan with an empty page and a token that may be used again; here the token is empty then.
        entries = tuple((item.key.decode(), Versioned(item.value, item.version)) for item in items)
        return Page(entries, token if entries else b"")
