"""Keeps the maps that segments of a container have, for one use: one object each, and none without its segment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from pravega_common.errors import Fenced, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from segment_service.contracts.segment_storage import LogState, LogStateNow
from segment_service.contracts.sorted_map import SortedMap, SortedMaps
from segment_service.contracts.spawn import Spawn
from segment_service.contracts.table_maps import TABLE_MAPS, segment_map_name, segment_of_map

MARKED: Final = register("table_maps.marked_before_flush")

sweep_delay_s: Final = 30.0
"""How long after the start of a container the maps of deleted segments are looked for."""

Mark = Callable[[int], Awaitable[None]]


class ContainerTableMap:
    """``TableMap`` over a sorted map. ``mark``: see ``SegmentStorage.mark``."""

    def __init__(self, sorted_map: SortedMap, log_state: LogStateNow, mark: Mark, spawn: Spawn) -> None:
        self._map = sorted_map
        self._log_state = log_state
        self._mark = mark
        self._opening = asyncio.Lock()
        self.writing = asyncio.Lock()
        self.spawn = spawn

    @property
    def identity(self) -> bytes:
        return self._log_state().identity

    @property
    def is_open(self) -> bool:
        return self._map.is_open

    @property
    def stamp(self) -> LogState | None:
        return self._map.stamp

    async def open(self) -> None:
        async with self._opening:
            if not self._map.is_open:
                await self._map.open()

    async def flush(self, changes: Mapping[bytes, bytes | None]) -> None:
        stamp = self._log_state()
        await self._mark(stamp.high_water)
        failpoint(MARKED)
        await self._map.flush(changes, stamp)

    async def get(self, key: bytes) -> bytes | None:
        return await self._map.get(key)

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._map.get_many(keys)

    async def scan(self, first: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        return await self._map.scan(first, count_max)

    async def remove_all(self) -> None:
        async with self._opening:
            await self._map.remove_all()


class ContainerTableMaps(Service):
    """Removes the map of a segment that was deleted; what a crash leaves of one goes once in each epoch."""

    def __init__(
        self,
        container_id: int,
        maps: SortedMaps,
        log_state: LogStateNow,
        mark: Mark,
        exists: Callable[[int], Awaitable[bool]],
        clock: Clock,
        prefix: str = TABLE_MAPS,
    ) -> None:
        """``exists``: whether there is a segment of this id; ``prefix``: begin of the maps' names."""
        super().__init__(f"segment-maps-{prefix}{container_id}")
        self._maps = maps
        self._log_state = log_state
        self._mark = mark
        self._exists = exists
        self._clock = clock
        self._prefix = prefix
        self._used: WeakValueDictionary[int, ContainerTableMap] = WeakValueDictionary()

    async def on_start(self) -> None:
        self.spawn(self._run(), "sweep")

    def table_map(self, segment_id: int) -> ContainerTableMap:
        """The only object of this map that is in use."""
        found = self._used.get(segment_id)
        if found is None:
            sorted_map = self._maps.sorted_map(segment_map_name(self._prefix, segment_id))
            found = ContainerTableMap(sorted_map, self._log_state, self._mark, self.spawn)
            self._used[segment_id] = found
        return found

    def deleted(self, segment_id: int) -> None:
        """Tier 2 has nothing of this segment any more: remove its map, now or, if that fails, in the next epoch."""
        if self.is_running:
            self.spawn(self._remove(segment_id), "remove")

    async def sweep(self) -> int:
        """Remove the maps whose segments are gone; returns their number."""
        removed = 0
        for name in await self._maps.map_names(self._prefix):
            segment_id = segment_of_map(self._prefix, name)
            if segment_id is not None and not await self._exists(segment_id):
                await self._remove(segment_id)
                removed += 1
        return removed

    async def _remove(self, segment_id: int) -> None:
        table_map = self.table_map(segment_id)
        try:
            async with table_map.writing:  # an index may be flushing still
                await table_map.open()
                if table_map.stamp is None:
                    await table_map.flush({})  # files without a manifest may go once there is one of this epoch
                await table_map.remove_all()
        except PravegaError as error:
            self.log.info("the map of a segment is left to the next sweep", segment=segment_id, error=repr(error))

    async def _run(self) -> None:
        await self._clock.sleep(sweep_delay_s)
        try:
            removed = await self.sweep()
            self.log.info("swept the maps of segments", prefix=self._prefix, removed=removed)
        except Fenced as error:
            self.log.warning("the sweep is left to the next owner", reason=str(error))
        except PravegaError as error:
            self.log.warning("the sweep is left to the next epoch", error=repr(error))
