"""Reads and writes the objects of one sorted map in Tier 2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import structlog

from pravega_common.errors import DataCorruption, Fenced, SegmentNotFound
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.map_manifest import MapManifest, RunFile, decode, encode
from segment_service.sorted_runs.run_format import RunBlock, Tail, decode_block, decode_tail
from segment_service.storage.chunk_names import Layout, ManifestId, MapObjectId
from segment_service.storage.epoch_marks import PutFresh
from segment_service.storage.garbage import GarbageCollector

T = TypeVar("T", RunBlock, Tail)

REMEDY: Final = "restore the object from a copy"

read_attempts_max: Final = 2
"""Reads of bytes that fail their checksum: a bit that flipped on its way is right at the second."""

load_attempts_max: Final = 5
"""How often a map is listed again when its newest manifest is gone (it was replaced meanwhile)."""


async def list_map_names(chunks: ChunkStorage, layout: Layout, prefix: str = "") -> list[str]:
    """The names with this prefix of the maps of a container that have objects, in order."""
    names: dict[str, None] = {}
    async for info in chunks.list(f"{layout.maps}{prefix}"):
        names[info.name.removeprefix(layout.maps).partition("/")[0]] = None
    return list(names)


class MapObjects:
    """The objects of the map ``map_name`` of one container, written at one epoch."""

    def __init__(
        self,
        map_name: str,
        chunks: ChunkStorage,
        layout: Layout,
        garbage: GarbageCollector,
        put_fresh: PutFresh,
        new_number: Callable[[], int],
        cache: BlockCache,
    ) -> None:
        self.map_name = map_name
        self._chunks = chunks
        self._layout = layout
        self._garbage = garbage
        self._put_fresh = put_fresh
        self._new_number = new_number
        self._cache = cache
        self._log = structlog.get_logger(service="sorted-runs", map=map_name)

    @property
    def epoch(self) -> int:
        return self._garbage.epoch

    def file_name(self, file: RunFile) -> str:
        return self._layout.map_file(self.map_name, MapObjectId(file.epoch, file.counter))

    def orphan_name(self, file: MapObjectId) -> str:
        return self._layout.map_file(self.map_name, file)

    def manifest_name(self, manifest: ManifestId) -> str:
        return self._layout.map_manifest(self.map_name, manifest)

    def discard(self, names: Sequence[str]) -> None:
        """As ``GarbageCollector.discard``; nothing of them stays in the cache."""
        self._garbage.discard(names)
        for name in names:
            self._cache.forget(name)

    async def pass_barrier(self) -> None:
        """As ``GarbageCollector.pass_barrier``."""
        await self._garbage.pass_barrier()

    # --- manifests

    async def newest_manifest(self, *, check_epoch: bool = True) -> tuple[MapManifest | None, list[str]]:
        """The newest manifest, and the names of all others. ``Fenced`` if it is of a higher epoch than this owner's,
        unless that is not to be looked at."""
        prefix = self._layout.map_manifests(self.map_name)
        for attempt in range(load_attempts_max):
            names = [(info.name, info.length) async for info in self._chunks.list(prefix)]
            if not names:
                return None, []
            newest, length = names[-1]  # names sort as their numbers
            found = ManifestId(*self._layout.parse_map_object(newest))
            if check_epoch and found.epoch > self.epoch:
                raise Fenced(f"map {self.map_name} was changed at epoch {found.epoch}, this owner has {self.epoch}")
            try:
                data = await self._chunks.get(newest, 0, length)
            except SegmentNotFound:
                if attempt < load_attempts_max - 1:
                    continue
                raise DataCorruption(f"{newest} keeps vanishing while it is read") from None
            manifest = decode(data, newest)
            if manifest.id != found:
                raise DataCorruption(f"manifest {newest} says that it is {manifest.id}")
            return manifest, [name for name, _ in names[:-1]]
        return None, []

    async def earlier_files(self) -> list[MapObjectId]:
        """The files of earlier epochs that are in Tier 2, in a manifest or not."""
        prefix = self._layout.map_files(self.map_name)
        found = [self._layout.parse_map_object(info.name) async for info in self._chunks.list(prefix)]
        return [file for file in found if file.epoch < self.epoch]

    async def put_manifest(self, make: Callable[[ManifestId], MapManifest], unanswered: list[str]) -> MapManifest:
        """Store the manifest that ``make`` makes; names that had no answer are added to ``unanswered``."""

        def fresh() -> tuple[MapManifest, str, Sequence[Buffer]]:
            manifest = make(ManifestId(self.epoch, self._new_number()))
            return manifest, self.manifest_name(manifest.id), [encode(manifest)]

        return await self._put_fresh(fresh, unanswered)

    # --- files

    async def put_file(self, encode_as: Callable[[str], tuple[list[bytes], RunFile]]) -> RunFile:
        """Store a file; ``encode_as`` makes its bytes for a name, and the file without its name's numbers."""

        def fresh() -> tuple[RunFile, str, Sequence[Buffer]]:
            place = MapObjectId(self.epoch, self._new_number())
            name = self._layout.map_file(self.map_name, place)
            buffers, file = encode_as(name)
            named = RunFile(
                *place,
                file.length,
                file.tail_offset,
                file.entries,
                file.tombstones,
                file.first_key,
                file.last_key,
            )
            return named, name, buffers

        unanswered: list[str] = []
        try:
            return await self._put_fresh(fresh, unanswered)
        finally:
            self.discard(unanswered)

    def cached_tail(self, file: RunFile) -> Tail | None:
        return self._cache.tail((self.file_name(file), file.tail_offset))

    async def tail(self, file: RunFile) -> Tail:
        """``SegmentNotFound`` if the object is missing (it may have been replaced)."""
        name = self.file_name(file)
        found = self._cache.tail((name, file.tail_offset))
        if found is None:
            found = await self._load(name, file.tail_offset, file.length - file.tail_offset, decode_tail)
        return found

    async def block(self, file: RunFile, place: tuple[int, int]) -> RunBlock:
        """A block of the file, as its tail says where."""
        name = self.file_name(file)
        offset, length = place
        found = self._cache.block((name, offset))
        if found is None:
            found = await self._load(name, offset, length, decode_block)
        return found

    async def read(self, file: RunFile, offset: int, length: int) -> bytes:
        """Bytes of the file, unchecked and not kept."""
        return await self._chunks.get(self.file_name(file), offset, length)

    async def decoded_block(self, file: RunFile, place: tuple[int, int], data: memoryview) -> RunBlock:
        """The block of the file whose bytes ``read`` gave; read again if they fail their checksum."""
        name = self.file_name(file)
        try:
            return decode_block(bytes(data), name, place[0])
        except DataCorruption as error:
            self._log.warning("a part of a run is damaged, reading it again", error=str(error))
        return await self._read(name, *place, decode_block)

    async def _load(self, name: str, offset: int, length: int, decoder: Callable[[bytes, str, int], T]) -> T:
        """Read a part once, however many want it at the same time."""
        key, loading = (name, offset), self._cache.loading
        while (other := loading.get(key)) is not None:
            part = await asyncio.shield(other)
            if part is not None:
                return cast(T, part)
        mine = loading[key] = asyncio.get_running_loop().create_future()
        found: T | None = None
        try:
            found = await self._read(name, offset, length, decoder)
            self._cache.add(key, found, length)
            return found
        finally:
            del loading[key]
            mine.set_result(found)

    async def _read(self, name: str, offset: int, length: int, decoder: Callable[[bytes, str, int], T]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return decoder(await self._chunks.get(name, offset, length), name, offset)
            except DataCorruption as error:
                if attempt == read_attempts_max:
                    raise DataCorruption(f"map {self.map_name} in Tier 2: {error}; {REMEDY}") from error
                self._log.warning("a part of a run is damaged, reading it again", error=str(error))
