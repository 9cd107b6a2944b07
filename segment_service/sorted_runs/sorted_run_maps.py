"""Makes the sorted maps of one container, and merges their runs in the background."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from pravega_common.errors import DataCorruption, Fenced, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.map_objects import MapObjects, list_map_names
from segment_service.sorted_runs.merging import merges_at_once_max
from segment_service.sorted_runs.sorted_run_map import SortedRunMap
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.shared_objects import shared_map_name

waiting_maps_max: Final = 10_000
"""Maps that wait for a merge; more are considered again at their next flush, which merges itself in the end."""


class SortedRunMaps(Service):
    """``SortedMaps`` beside the segments of a ``RollingStorage``, with its names, its numbers and its garbage. One of
    them holds the storage's own small objects.

    A merge that fails puts its map off until the next flush; a map with damage is not merged any more, so that what is
    whole of it can be read on. Without ``start`` nothing is merged in the background.
    """

    def __init__(
        self,
        container_id: int,
        chunks: ChunkStorage,
        storage: RollingStorage,
        clock: Clock,
        cache: BlockCache | None = None,
    ) -> None:
        """``cache``: shared by the containers of a store; ``None`` makes one."""
        super().__init__(f"sorted-runs-{container_id}")
        self._chunks = chunks
        self._storage = storage
        self._clock = clock
        self.cache = BlockCache() if cache is None else cache
        self._waiting: dict[SortedRunMap, None] = {}
        self._damaged: set[str] = set()
        self._made: WeakValueDictionary[str, SortedRunMap] = WeakValueDictionary()
        self._wake = asyncio.Event()
        storage.shared.attach(self.sorted_map(shared_map_name))

    def sorted_map(self, map_name: str) -> SortedRunMap:
        found = self._made.get(map_name)
        if found is None:
            found = self._made[map_name] = self._make(map_name)
        return found

    async def map_names(self, prefix: str) -> list[str]:
        return await list_map_names(self._chunks, self._storage.layout, prefix)

    def _make(self, map_name: str) -> SortedRunMap:
        storage = self._storage
        objects = MapObjects(
            map_name,
            self._chunks,
            storage.layout,
            storage.garbage,
            storage.put_fresh,
            storage.new_number,
            self.cache,
        )
        return SortedRunMap(objects, self._clock, self.consider)

    async def on_start(self) -> None:
        for number in range(merges_at_once_max):
            self.spawn(self._run(), f"merge-{number}")

    def consider(self, changed: SortedRunMap) -> None:
        """Note the map if it has runs to merge."""
        if changed.map_name in self._damaged:
            return
        if len(self._waiting) < waiting_maps_max and changed.can_merge:
            self._waiting[changed] = None
            self._wake.set()

    async def merge_waiting(self) -> None:
        """Work through the maps that wait. ``Fenced`` is passed on."""
        while self._waiting:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            try:
                while await waiting.merge_once():
                    pass
            except Fenced:
                raise
            except DataCorruption as error:
                self._damaged.add(waiting.map_name)
                self.log.error("a damaged map is not merged any more", map=waiting.map_name, error=str(error))
            except PravegaError as error:
                self.log.info("merging was put off", map=waiting.map_name, error=repr(error))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.merge_waiting()
            except Fenced as error:
                self.log.warning("merging ends", reason=str(error))
                return
