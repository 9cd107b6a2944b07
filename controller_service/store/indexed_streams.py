"""Indexes some of all streams in a table of their own, so that work on these costs what they cost and not what all do.

Keys are ``scope/stream``. An index may name too many streams, never too few: who makes a stream belong to it puts the
entry, also over one that stands; who finds that a stream does not belong takes the entry out at the version that was
read before the stream was. So no order of the two loses a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from controller_service.store.versioned_store import ANY_VERSION, Versioned, VersionedStore
from pravega_common.errors import SegmentNotFound, VersionConflict
from pravega_common.names import scoped_name

IndexedStream = tuple[str, str, Versioned]
"""Scope and name of a stream, and its entry."""


class IndexedStreams:
    """One index. Its table is made with the first entry."""

    def __init__(self, tables: VersionedStore, table: str) -> None:
        self._tables = tables
        self._table = table

    async def pages(self) -> AsyncIterator[list[IndexedStream]]:
        """All streams of the index, a page at a time."""
        continuation = b""
        while True:
            try:
                page = await self._tables.scan(self._table, continuation)
            except SegmentNotFound:
                return
            named = ((*name.partition("/"), found) for name, found in page.entries)
            yield [(scope, stream, found) for scope, slash, stream, found in named if slash]
            continuation = page.continuation
            if not continuation:
                return

    async def remove(self, scope: str, stream: str, version: int) -> None:
        """Take an entry out, unless it was put again since it was read."""
        try:
            await self._tables.remove(self._table, scoped_name(scope, stream), version)
        except (VersionConflict, SegmentNotFound):
            return

    async def has(self, key: str) -> bool:
        try:
            return await self._tables.get(self._table, key) is not None
        except SegmentNotFound:
            return False

    async def put(self, key: str, value: bytes) -> None:
        """Also over an entry that stands: who found the stream not to belong before must not take it out."""
        try:
            await self._tables.put(self._table, key, value, ANY_VERSION)
        except SegmentNotFound:
            await self._tables.create_table(self._table)
            await self._tables.put(self._table, key, value, ANY_VERSION)
