"""Gives tables their maps without a container: real sorted maps over chunks in memory, at one epoch after another."""

from __future__ import annotations

import asyncio

from pravega_common.runtime.clock import Clock, SystemClock
from segment_service.container.table_maps import ContainerTableMap, ContainerTableMaps
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import LogState
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage


class TableMaps:
    """``TableMapSource``. ``open`` first, and once more wherever a container would start again."""

    def __init__(
        self, chunks: ChunkStorage | None = None, clock: Clock | None = None, cache_bytes: int = 1 << 20
    ) -> None:
        self.chunks = InMemoryChunkStorage() if chunks is None else chunks
        self.identity = b"the log's number"
        self.epoch = 0
        self.segments: set[int] | None = None
        """The ids of the segments that exist; ``None``: all."""
        self._clock = clock or SystemClock()
        self._cache_bytes = cache_bytes
        self.storage: RollingStorage
        self.runs: SortedRunMaps
        self.maps: ContainerTableMaps

    async def open(self) -> TableMaps:
        """Begin the next epoch; what the last one was doing goes on as that of a fenced owner does."""
        self.epoch += 1
        epoch = self.epoch
        storage = RollingStorage(self.chunks, 0, self._clock, background=False)

        async def barrier() -> None:
            assert epoch == self.epoch, "a fenced owner passes no barrier"

        state = LogState(self.identity, 1, 1)
        await storage.start(epoch, barrier, lambda: state)
        self.storage = storage
        self.runs = SortedRunMaps(0, self.chunks, storage, self._clock, BlockCache(self._cache_bytes))
        self.maps = ContainerTableMaps(0, self.runs, lambda: state, storage.mark, self._exists, self._clock)
        return self

    def container_of(self, segment: str) -> ContainerTableMaps:
        return self.maps

    def table_map(self, segment: str, segment_id: int) -> ContainerTableMap:
        return self.maps.table_map(segment_id)

    async def settled(self) -> None:
        """Wait until no flush is under way."""
        while tasks := list(self.maps._tasks):  # private: nothing of the product waits for them
            await asyncio.wait(tasks)

    async def _exists(self, segment_id: int) -> bool:
        return self.segments is None or segment_id in self.segments
