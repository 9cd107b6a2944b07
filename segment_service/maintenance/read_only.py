"""Reads the objects of one container in Tier 2 as its stores do, and writes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from pravega_common.errors import ConfigurationError, DataCorruption, SegmentDamaged, SegmentNotFound, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import EpochMark
from segment_service.maintenance.shared_objects_reader import (
    SharedObjectsReader,
    refuse_number,
    refuse_put,
    refuse_put_for,
)
from segment_service.metadata_table.metadata_table import id_in, id_key, map_name, stored_length
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.map_manifest import MapManifest
from segment_service.sorted_runs.map_objects import MapObjects, list_map_names
from segment_service.sorted_runs.merging import merge_ahead_bytes
from segment_service.sorted_runs.run_reader import walk
from segment_service.storage.chunk_names import Layout, ManifestId, ManifestName
from segment_service.storage.epoch_marks import EpochMarks
from segment_service.storage.foreign_owners import ForeignOwners
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_view import SegmentView

reader_epoch: Final = 2**63
"""Above the epoch of every owner, so that nothing that is read looks like the work of a later one. Never written."""

walks_max: Final = 100
"""How often a walk over the table goes on with a newer manifest because the one before was replaced."""


def refuse_unknown_containers(only: Sequence[int], containers: int) -> None:
    """``ConfigurationError`` if an operator names a container that the cluster has not."""
    outside = [one for one in only if not 0 <= one < containers]
    if outside:
        raise ConfigurationError(f"container {outside[0]}: there are containers 0 to {containers - 1}")


class NoGarbage(GarbageCollector):
    """Deletes nothing and remembers nothing."""

    def _add(self, group: deque[str]) -> bool:
        """Leave the objects to their owner."""
        return False


class ContainerReader:
    """Marks, manifests and sorted maps of one container, while its owner may change them. The map ``map_name`` is the
    metadata table; others are the key indexes of large tables. ``chunks`` shows the container's objects by name, also
    those that lie in its map ``shared``."""

    def __init__(self, chunks: ChunkStorage, container_id: int, clock: Clock) -> None:
        self.layout = Layout(container_id)
        chunks = self.chunks = SharedObjectsReader(chunks, self.layout, clock)
        garbage = NoGarbage(container_id, chunks, self.layout, clock)
        garbage.epoch = reader_epoch
        self._manifests = ManifestStore(chunks, self.layout, garbage)
        self._manifests.epoch = reader_epoch
        self.owners = ForeignOwners(chunks, self.layout, refuse_put_for, refuse_number)
        self._marks = EpochMarks(chunks, self.layout, garbage, refuse_put, refuse_number)
        self._garbage = garbage
        self._cache = BlockCache()
        self._chunks = chunks
        self._clock = clock

    async def newest_mark(self) -> EpochMark | None:
        """As ``EpochMarks.newest``."""
        return await self._marks.newest()

    async def epoch_max(self) -> int:
        """The highest epoch in the name of any mark, 0 without one."""
        return max(
            [self.layout.parse_epoch(info.name) async for info in self._chunks.list(self.layout.epochs)], default=0
        )

    async def view(self, segment_id: int) -> SegmentView:
        """Read a segment from Tier 2 as it is now, and keep nothing. ``SegmentDamaged`` if a manifest is wrong."""
        try:
            return await self._manifests.load(segment_id)
        finally:
            self._manifests.forget(segment_id)

    async def view_if_sound(self, segment_id: int) -> SegmentView | None:
        """As ``view``; ``None`` if a manifest is wrong."""
        try:
            return await self.view(segment_id)
        except SegmentDamaged:
            return None

    async def newest_manifests(self) -> AsyncGenerator[ManifestName]:
        """The newest manifest of each segment that has one, in the order of segment ids, from one listing."""
        last: ManifestName | None = None
        async for info in self._chunks.list(self.layout.manifests):
            name = self.layout.parse_manifest(info.name)
            if last is not None and last.segment_id != name.segment_id:
                yield last
            last = name
        if last is not None:
            yield last

    async def map_names(self) -> list[str]:
        """The names of all maps that have objects."""
        return await list_map_names(self._chunks, self.layout)

    async def newest_map(self, name: str = map_name) -> MapManifest | None:
        """The newest manifest of a map; ``None`` without one, or if the map was removed."""
        manifest, _ = await self._objects(name).newest_manifest(check_epoch=False)
        return None if manifest is None or manifest.is_removed else manifest

    async def entries(self, first: bytes, name: str = map_name) -> AsyncGenerator[tuple[bytes, bytes]]:
        """A map's entries from the key ``first`` on, in order, and not of one moment: when the owner replaced what
        is being read, the newest state goes on behind the last key. ``DataCorruption`` if the map is damaged."""
        manifest = await self.newest_map(name)
        for _ in range(walks_max):
            if manifest is None:
                return
            try:
                async for key, value in self._walk(name, manifest, first):
                    yield key, value
                    first = key + b"\0"
                return
            except (SegmentNotFound, DataCorruption) as error:
                newest = await self.newest_map(name)
                if newest is not None and newest.id == manifest.id:
                    raise _damage(name, manifest.id, error) from error
                manifest = newest
        raise Unavailable(f"the map {name} keeps being replaced while it is read: try again when less is going on")

    async def stored_lengths(self) -> AsyncGenerator[tuple[int, int]]:
        """The ids of the segments in the metadata table, in order, and the bytes that Tier 2 had of each. Errors are
        those of ``entries``."""
        async for key, value in self.entries(id_key(0)):
            segment_id = id_in(key)
            if segment_id is None:
                return  # the names follow
            yield segment_id, stored_length(value)

    def _objects(self, name: str) -> MapObjects:
        garbage, cache = self._garbage, self._cache
        return MapObjects(name, self._chunks, self.layout, garbage, refuse_put, refuse_number, cache)

    async def _walk(self, name: str, manifest: MapManifest, first: bytes) -> AsyncGenerator[tuple[bytes, bytes]]:
        slices = TimeSlices(self._clock)
        async for keys, values in walk(
            self._objects(name), manifest.runs, first, slices, ahead_bytes=merge_ahead_bytes
        ):
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    yield key, value


def _damage(name: str, manifest: ManifestId, error: SegmentNotFound | DataCorruption) -> DataCorruption:
    if isinstance(error, DataCorruption):
        return error
    return DataCorruption(f"the map {name} lists {error.segment} in manifest {manifest}, and it is missing")
