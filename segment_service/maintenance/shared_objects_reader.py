"""Reads objects of one container by name, also those that lie in its map ``shared``, while its owner changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn, TypeVar

from pravega_common.errors import DataCorruption, PravegaError, SegmentNotFound, Unavailable
from pravega_common.invariants import unreachable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, ChunkStorage
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.map_manifest import MapManifest
from segment_service.sorted_runs.map_objects import MapObjects
from segment_service.sorted_runs.merging import merge_ahead_bytes
from segment_service.sorted_runs.run_reader import look_up, walk
from segment_service.storage.chunk_names import Layout
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.shared_objects import (
    by_name,
    bytes_in,
    end_of,
    entry_key,
    first_epoch_in,
    first_epoch_key,
    may_hold_entries,
    shared_map_name,
)

T = TypeVar("T")

attempts_max: Final = 100
"""How often a question is put to a newer state of the map because the one before was replaced."""


class SharedObjectsReader:
    """``ChunkStorage`` of one container over that of all, for readers. Its answers go forward in time only.

    A question for an object, or for those of one segment, is ``DataCorruption`` if the map is damaged where they lie. A
    listing of several segments lacks entries then, and ``damage`` says so: ask for what must be there by its segment.
    """

    def __init__(self, chunks: ChunkStorage, layout: Layout, clock: Clock) -> None:
        self.damage = ""
        """The reason why a listing had not all entries; empty as long as each had."""
        self.objects = chunks
        """The objects alone, without entries."""
        self._chunks = chunks
        self._layout = layout
        self._clock = clock
        garbage = GarbageCollector(0, chunks, layout, clock)
        self._objects = MapObjects(shared_map_name, chunks, layout, garbage, refuse_put, refuse_number, BlockCache())
        self._manifest: MapManifest | None = None
        self._first_epoch: int | None = None

    async def manifest(self) -> MapManifest | None:
        """The newest manifest of the map; ``None`` for a container that never shared objects."""
        await self._refresh()
        return self._manifest

    # --- ChunkStorage

    async def start(self) -> None:
        """Do nothing: the maker of the chunk storage starts it."""

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        unreachable("a reader of Tier 2 writes", name=name)

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        unreachable("a reader of Tier 2 deletes", names=names)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        if not await self._is_entry(name):
            return await self._chunks.get(name, offset, length)
        return bytes_in(await self._value(name), name, offset, length)

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        if not await self._is_entry(name):
            return await self._chunks.get_with(name, offset, length, function)
        return function(bytes_in(await self._value(name), name, offset, length))

    async def info(self, name: str) -> ChunkInfo:
        if not await self._is_entry(name):
            return await self._chunks.info(name)
        return ChunkInfo(name, len(await self._value(name)))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        if self._layout.segment_in(prefix) is not None:
            for info in await self._of_segment(prefix):
                yield info
            return
        async for info in by_name(self._sound_entries(prefix), self._chunks.list(prefix)):
            yield info

    async def close(self) -> None:
        """Do nothing: the maker of the chunk storage closes it."""

    # --- entries

    async def _is_entry(self, name: str) -> bool:
        epoch = self._layout.shared_epoch_in(name)
        if epoch is None:
            return False
        if self._first_epoch is None:
            await self._refresh()
        return self._first_epoch is not None and epoch >= self._first_epoch

    async def _value(self, name: str) -> bytes:
        key = entry_key(self._layout, name)
        value = await self._ask(lambda manifest: look_up(self._objects, manifest.runs, key))
        if value is None:
            await self._refresh()  # it may be newer than what is known here
            value = await self._ask(lambda manifest: look_up(self._objects, manifest.runs, key))
        if value is None:
            raise SegmentNotFound(name)
        return value

    async def _sound_entries(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        """Those below the prefix of several segments, as far as the map is sound."""
        if not may_hold_entries(self._layout, prefix):
            return
        try:
            await self._refresh()
            async for info in self._entries(prefix):
                yield info
        except DataCorruption as error:
            self.damage = str(error)

    async def _entries(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        """Those below the prefix, not of one moment: as ``ContainerReader.entries``."""
        if not may_hold_entries(self._layout, prefix) or self._manifest is None:
            return
        first = entry_key(self._layout, prefix)
        end = end_of(first)
        ahead_bytes = merge_ahead_bytes if self._layout.segment_in(prefix) is None else 0  # few are of one segment
        for _ in range(attempts_max):
            manifest = self._manifest
            try:
                async for keys, values in walk(
                    self._objects, manifest.runs, first, TimeSlices(self._clock), end=end, ahead_bytes=ahead_bytes
                ):
                    for key, value in zip(keys, values, strict=True):
                        if value is not None and key != first_epoch_key:
                            yield ChunkInfo(self._layout.prefix + key.decode(), len(value))
                        first = key + b"\0"
                return
            except SegmentNotFound as error:
                await self._go_on_after(manifest, error)
        raise Unavailable("shared objects keep being replaced while they are read: try again when less is going on")

    async def _of_segment(self, prefix: str) -> Sequence[ChunkInfo]:
        """The objects of a segment, and its entries of before and behind their listing: one that replaced an object
        meanwhile is only in the later ones."""
        await self._refresh()
        before = self._manifest
        found = {info.name: info async for info in self._entries(prefix)}
        found |= {info.name: info async for info in self._chunks.list(prefix)}
        await self._refresh()
        if self._manifest is not None and (before is None or self._manifest.id != before.id):
            found |= {info.name: info async for info in self._entries(prefix)}
        return [found[name] for name in sorted(found)]

    async def _ask(self, question: Callable[[MapManifest], Awaitable[T]]) -> T:
        for _ in range(attempts_max):
            if self._manifest is None:
                await self._refresh()
            manifest = self._manifest
            if manifest is None:
                unreachable("entries of a container that shares none", container=self._layout.prefix)
            try:
                return await question(manifest)
            except SegmentNotFound as error:
                await self._go_on_after(manifest, error)
        raise Unavailable("shared objects keep being replaced while they are read: try again when less is going on")

    async def _go_on_after(self, manifest: MapManifest, error: SegmentNotFound) -> None:
        """Take a newer state: an object that this one lists is missing. ``DataCorruption`` without a newer one."""
        await self._refresh()
        if self._manifest is None or self._manifest.id == manifest.id:
            raise DataCorruption(
                f"the map of shared objects lists {error.segment} in manifest {manifest.id}, and it is missing"
            ) from error

    async def _refresh(self) -> None:
        newest, _ = await self._objects.newest_manifest(check_epoch=False)
        self._manifest = newest
        if newest is not None and self._first_epoch is None:
            try:
                value = await self._ask(lambda manifest: look_up(self._objects, manifest.runs, first_epoch_key))
                self._first_epoch = first_epoch_in(value) or 0
            except DataCorruption as error:
                self.damage = str(error)
                self._first_epoch = 0  # as for the owner: entries of any epoch are read


async def refuse_put(fresh: Callable[[], tuple[T, str, Sequence[Buffer]]], unanswered: Sequence[str]) -> NoReturn:
    """The ``PutFresh`` of a reader."""
    unreachable("a reader of Tier 2 writes", unanswered=unanswered)


async def refuse_put_for(segment_id: int, fresh: Callable[[], tuple[T, str, Sequence[Buffer]]]) -> NoReturn:
    """The ``PutFor`` of a reader."""
    unreachable("a reader of Tier 2 writes", segment=segment_id)


def refuse_number() -> NoReturn:
    """The numbers of a reader, which makes no names."""
    unreachable("a reader of Tier 2 makes a name")
