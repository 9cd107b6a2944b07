"""Routes every request to the container that its segment's name hashes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from pravega_common.errors import (
    ConfigurationError,
    ContainerNotHosted,
    InvalidArgument,
    PravegaError,
)
from pravega_common.hashing import container_of_segment
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_store import MergeResult, ReadResult, SegmentProperties, SegmentState
from segment_service.contracts.table_maps import TableMap

container_marker_prefix: Final = "cluster/containers-"
"""Begin of the name, in Tier 2, of an object that says how many containers the cluster was made with."""
routes_cached_max: Final = 65_536
"""Segment names whose container is remembered: 40 MiB at most, with names of this many characters."""
_cached_name_chars_max: Final = 512
"""Longest name whose container is remembered. Longer ones that clients make up would fill the memory."""


class RoutedSegmentStore:
    """``SegmentStore`` over the containers of a registry.

    ``is_stale`` says that the store lost its place in the cluster so long ago that it must answer nothing.
    A transaction goes where its parent goes; a merge needs both segments in one container.
    """

    def __init__(self, registry: ContainerRegistry, container_count: int, is_stale: Callable[[], bool]) -> None:
        self._registry = registry
        self._is_stale = is_stale
        self._container_count = container_count
        self._cached_route = lru_cache(maxsize=routes_cached_max)(self._computed_route)

    def container_of(self, segment: str) -> SegmentContainer:
        """``ContainerNotHosted`` if it runs elsewhere."""
        container_id = self._route(segment)
        if self._is_stale():
            raise ContainerNotHosted(container_id, f"container {container_id}: this store lost its lease long ago")
        return self._registry.get(container_id)

    def _route(self, segment: str) -> int:
        if len(segment) > _cached_name_chars_max or not segment.isascii():
            return self._computed_route(segment)
        return self._cached_route(segment)

    def _computed_route(self, segment: str) -> int:
        return container_of_segment(segment, self._container_count)

    def table_map(self, segment: str, segment_id: int) -> TableMap:
        """As ``TableMapSource``."""
        return self.container_of(segment).table_map(segment, segment_id)

    async def create_segment(self, segment: str, attributes: Sequence[AttributeUpdate] = ()) -> None:
        await self.container_of(segment).create_segment(segment, attributes)

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        try:
            container = self.container_of(segment)
        except PravegaError as error:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            future.exception()  # marks it retrieved: a caller may have gone away
            return future
        return container.append(segment, data, updates, expected_offset=expected_offset)

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        return await self.container_of(segment).read(segment, offset, length_max)

    def read_in_memory(self, segment: str, offset: int, length_max: int) -> ReadResult | None:
        return self.container_of(segment).read_in_memory(segment, offset, length_max)

    async def get_info(self, segment: str) -> SegmentProperties:
        return await self.container_of(segment).get_info(segment)

    def state_in_memory(self, segment: str) -> SegmentState | None:
        return self.container_of(segment).state_in_memory(segment)

    async def locate_offset(self, segment: str, offset: int) -> int:
        return await self.container_of(segment).locate_offset(segment, offset)

    async def get_attribute(self, segment: str, attribute_id: AttributeId) -> int:
        return await self.container_of(segment).get_attribute(segment, attribute_id)

    async def update_attributes(self, segment: str, updates: Sequence[AttributeUpdate]) -> None:
        await self.container_of(segment).update_attributes(segment, updates)

    async def seal(self, segment: str) -> int:
        return await self.container_of(segment).seal(segment)

    async def truncate(self, segment: str, offset: int) -> None:
        await self.container_of(segment).truncate(segment, offset)

    async def delete(self, segment: str) -> None:
        await self.container_of(segment).delete(segment)

    async def merge(self, target: str, source: str, updates: Sequence[AttributeUpdate] = ()) -> MergeResult:
        if self._route(target) != self._route(source):
            raise InvalidArgument(
                f"{source} and {target} are in different containers: only a transaction can be merged"
            )
        return await self.container_of(target).merge(target, source, updates)


async def check_container_count(cpo: ControlPlaneOracle, chunks: ChunkStorage, count: int, incarnation: str) -> None:
    """Fix the number of containers at the first start of the cluster; ``ConfigurationError`` if it is another one.

    It is written to the CPO and to Tier 2, so that neither can be exchanged for that of another cluster, nor be lost,
    without notice. ``incarnation`` makes the name in Tier 2 fresh: several stores may start at once.
    """
    registered = await cpo.set_once(CONTAINER_COUNT_KEY, str(count))
    if registered != str(count):
        raise ConfigurationError(
            f"store.containers = {count}, but this cluster was made with {registered} containers: set it to that"
        )
    marked = await marked_container_counts(chunks)
    if not marked:
        await chunks.put(f"{container_marker_prefix}{count}/{incarnation}", [b"containers\n"])
    elif marked != {str(count)}:
        raise ConfigurationError(
            f"store.containers = {count}, but Tier 2 was made with {' and '.join(sorted(marked))} containers: "
            "set it to that, or tier2.url to a place of this cluster's own"
        )


async def marked_container_counts(chunks: ChunkStorage) -> set[str]:
    """The numbers of containers that clusters were made with over this Tier 2: one, or none before the first start."""
    return {_marked_count(info.name) async for info in chunks.list(container_marker_prefix)}


def _marked_count(name: str) -> str:
    return name.removeprefix(container_marker_prefix).partition("/")[0]
