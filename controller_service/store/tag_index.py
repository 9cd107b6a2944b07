"""Indexes the streams of a scope by their tags, so that listing those of a tag reads those alone.

Per scope there is a table ``streamTagsInScope``, with ``tag_chunks`` keys for each tag, which hold names of streams.
The index may name too many, never too few: a listing compares with the streams' entries. For that, who gives a stream a
tag writes the chunk before and after the entry, also if it names the stream already; and who takes a stream out of a
chunk read the chunk before the entry, and writes it only if it is as it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, Put, Versioned, VersionedStore
from pravega_common.errors import SegmentNotFound, VersionConflict

TAGS_TABLE: Final = "streamTagsInScope"
tag_chunks: Final = 16
"""Keys of one tag: a tenth of a megabyte each for 100,000 streams."""

Repeat = Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs work again, from its reads, while others get in between; the text names its subject."""


@dataclass(frozen=True, slots=True)
class TaggedStreams:
    """Names of streams in one chunk of a tag, sorted; some may have lost the tag."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundChunk:
    key: str
    version: int
    names: tuple[str, ...]


class TagIndex:
    """Tables are named by the caller, who knows the scope's id."""

    def __init__(self, tables: VersionedStore, repeat: Repeat) -> None:
        self._tables = tables
        self._repeat = repeat

    async def note(self, table: str, stream: str, tags: Sequence[str]) -> None:
        """Write a stream into the chunks of its tags, as one step; makes the table of a scope of a former version."""
        if not tags:
            return
        keys = [_key(tag, _chunk_of(stream)) for tag in tags]

        async def write() -> None:
            try:
                found = await self._tables.get_many(table, keys)
            except SegmentNotFound:
                await self._tables.create_table(table)
                found = [None] * len(keys)
            puts = []
            for key, value in zip(keys, found, strict=True):
                names = tuple(sorted({*_names(value), stream}))
                puts.append(Put(key, encode(TaggedStreams(names)), ABSENT if value is None else value.version))
            await self._tables.put_many(table, puts)

        await self._repeat(f"tags of stream {stream}", write)

    async def chunk(self, table: str, tag: str, number: int) -> FoundChunk | None:
        """One of the ``tag_chunks`` parts of a tag; None when it names nothing."""
        key = _key(tag, number)
        try:
            found = await self._tables.get(table, key)
        except SegmentNotFound:
            return None
        return None if found is None else FoundChunk(key, found.version, _names(found))

    async def remove(self, table: str, chunk: FoundChunk, gone: Collection[str]) -> None:
        """Take streams out of a chunk, which was read before their entries; nothing if somebody wrote it since."""
        left = tuple(name for name in chunk.names if name not in gone)
        try:
            if left:
                await self._tables.put(table, chunk.key, encode(TaggedStreams(left)), chunk.version)
            else:
                await self._tables.remove(table, chunk.key, chunk.version)
        except (VersionConflict, SegmentNotFound):
            return  # the next listing looks again

    async def chunk_of(self, table: str, tag: str, stream: str) -> FoundChunk | None:
        """The chunk that names a stream under a tag, if it does."""
        found = await self.chunk(table, tag, _chunk_of(stream))
        return found if found is not None and stream in found.names else None


def _names(value: Versioned | None) -> tuple[str, ...]:
    return () if value is None else decode(TaggedStreams, value.value).names


def _chunk_of(stream: str) -> int:
    return zlib.crc32(stream.encode()) % tag_chunks


def _key(tag: str, chunk: int) -> str:
    return f"{chunk}/{tag}"
