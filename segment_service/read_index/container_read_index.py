"""Implements the read index of one container."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pravega_common.errors import (
    BadOffset,
    ContainerOffline,
    InvalidArgument,
    PravegaError,
    SegmentMerged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    Unavailable,
)
from pravega_common.invariants import check, unreachable
from segment_service.cache.manager import CacheManager
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import CheckOwner
from segment_service.contracts.second_level_cache import SegmentKey
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.segment_store import ReadResult, read_bytes_max
from segment_service.contracts.spawn import Spawn
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.read_index.fetch_budget import FetchBudget
from segment_service.read_index.segment_read_index import SegmentReadIndex
from segment_service.read_index.storage_fetch import StorageFetcher

read_attempts_max: Final = 4
"""Attempts of a read whose segment changes under it, before it gives up as ``Unavailable``."""


class ContainerReadIndex:
    """``contracts/read_index.py`` over the container's metadata, its Tier 2 and the store's cache.

    ``spawn`` is the container's ``Service.spawn``; it owns the fetches from Tier 2. ``check_owner`` is awaited before
    damage is reported: what a later owner did to Tier 2 looks the same. ``budget`` is the store's.
    """

    def __init__(
        self,
        metadata: ContainerMetadata,
        storage: SegmentStorage,
        cache: CacheManager,
        spawn: Spawn,
        check_owner: CheckOwner,
        budget: FetchBudget | None = None,
    ) -> None:
        self._metadata = metadata
        self._cache = cache
        self._budget = budget or FetchBudget(cache)
        self._fetcher = StorageFetcher(
            storage, spawn, metadata.quarantine, check_owner, self._budget, cache.second_level
        )
        self._indices: dict[int, SegmentReadIndex] = {}
        self._to_wake: dict[SegmentReadIndex, None] = {}
        """In the order in which they grew, which a set would not keep."""
        self._is_closed = False

    # --- changes, in log order; ignored after ``close`` ------------------------------------------------------------

    def append(self, segment_id: int, offset: int, data: Sequence[Buffer]) -> None:
        if self._is_closed:
            return
        index = self._index(segment_id)
        index.append(offset, data)
        self._wake_soon(index)

    def merge(self, target_id: int, offset: int, source_id: int, length: int) -> None:
        if self._is_closed:
            return
        target, source = self._index(target_id), self._index(source_id)
        target.merge(offset, source, length)
        self._wake_soon(target)
        source.waiters.wake_all()

    def merge_completed(self, target_id: int, source_id: int) -> None:
        source = self._indices.get(source_id)
        if source is None or source.target is None:
            return
        check(source.target.metadata.segment_id == target_id, "a merge ended in another target", source_id=source_id)
        source.target.merge_completed(source)
        self._forget(source)

    def seal(self, segment_id: int) -> None:
        index = self._indices.get(segment_id)
        if index is not None:
            index.waiters.wake_all()

    def truncate(self, segment_id: int, offset: int) -> None:
        index = self._indices.get(segment_id)
        if index is not None:
            index.truncate(offset)

    def delete(self, segment_id: int) -> None:
        index = self._indices.get(segment_id)
        if index is not None:
            self._forget(index)
            index.drop()
            index.waiters.wake_all()
        if self._cache.second_level is not None:
            self._cache.second_level.forget(SegmentKey(self._metadata.container_id, segment_id))

    def is_in_use(self, segment_id: int) -> bool:
        index = self._indices.get(segment_id)
        return index is not None and bool(index.parts or index.waiters or index.target is not None)

    def unload(self, segment_id: int) -> None:
        """The segment becomes inactive: all its bytes are in Tier 2, nobody waits; it comes back when it is used."""
        index = self._indices.get(segment_id)
        if index is not None:
            is_stored = index.metadata.storage_length == index.metadata.length
            check(is_stored and not index.parts and not index.waiters, "unload of a segment in use", id=segment_id)
            self.delete(segment_id)

    def storage_length_changed(self, segment_id: int) -> None:
        index = self._indices.get(segment_id)
        if index is not None:
            index.mark_stored()

    def close(self) -> None:
        """As the contract says; also give the blocks back to the store's cache. What the log still applies afterwards
        is ignored, and ``read_cached`` is ``ContainerOffline``."""
        self._is_closed = True
        self._fetcher.close()
        for index in self._indices.values():
            index.waiters.wake_all()
            index.drop()
        self._indices.clear()

    # --- reads -------------------------------------------------------------------------------------------------------

    async def read(self, segment_id: int, offset: int, length_max: int) -> ReadResult:
        if offset < 0 or length_max < 1:
            raise InvalidArgument(f"read of {length_max} bytes at {offset}: give an offset >= 0 and a length >= 1")
        if self._has_closed():
            raise ContainerOffline(f"container {self._metadata.container_id} is not serving reads")
        wanted = min(length_max, read_bytes_max)
        waited = False
        for _ in range(read_attempts_max):
            index = self._live(segment_id)
            while not index.metadata.start_offset <= offset < index.metadata.length:
                at_end = self._at_end(index, offset, waited)
                if at_end is not None:
                    return at_end
                waited = True
                await index.waiters.wait(offset)
                if self._has_closed():
                    return ReadResult(offset, (), at_tail=True, end_of_segment=False, has_waited=True)
                index = self._live(segment_id)
            views = await self._gather(index, offset, wanted)
            if views:
                return self._result(index, offset, views, wanted, waited)
        raise Unavailable(f"{index.metadata.name}: the bytes at {offset} cannot be found in Tier 2 now")

    def read_in_memory(self, segment_id: int, offset: int, length_max: int) -> ReadResult | None:
        """Answers as ``read`` where all wanted bytes that there are have a place in the cache; None where not.

        No reader goes on behind such a read, so nothing is noted of it.
        """
        index = self._indices.get(segment_id)
        metadata = self._metadata.segments.get(segment_id)
        if self._has_closed() or index is None or metadata is None or metadata.is_merged or metadata.is_deleted:
            return None
        if not metadata.start_offset <= offset < metadata.length or length_max < 1:
            return None
        wanted = min(length_max, read_bytes_max)
        end = min(offset + wanted, metadata.length)
        views: list[memoryview] = []
        if index.collect(offset, end, views) < end:
            return None
        return self._result(index, offset, views, wanted, waited=False)

    def truncated_below(self, segment_id: int) -> int:
        index = self._indices.get(segment_id)
        if index is None:
            metadata = self._metadata.segments.get(segment_id)
            return 0 if metadata is None else metadata.start_offset
        root, base = index.root()
        return max(0, root.metadata.start_offset - base)

    def read_cached(self, segment_id: int, offset: int, length: int) -> list[memoryview]:
        if self._has_closed():
            raise ContainerOffline(f"container {self._metadata.container_id} has stopped")
        views: list[memoryview] = []
        if length:
            index = self._indices.get(segment_id)
            if index is None:
                unreachable("no cached bytes of this segment", segment_id=segment_id, offset=offset, length=length)
            root, base = index.root()
            found = root.collect(base + offset, base + offset + length, views) - base
            check(found == offset + length, "bytes that are not in Tier 2 are missing from the cache", offset=found)
        return views

    @staticmethod
    def _at_end(index: SegmentReadIndex, offset: int, waited: bool) -> ReadResult | None:
        """The answer to a read outside of the segment's bytes; ``None`` if it has to wait."""
        metadata = index.metadata
        if offset < metadata.start_offset:
            raise SegmentTruncated(metadata.name, metadata.start_offset, offset)
        if not metadata.is_sealed:
            return None
        if waited:
            raise SegmentSealed(metadata.name, offset=offset)
        if offset > metadata.length:
            raise BadOffset(metadata.name, metadata.length, offset)
        return ReadResult(offset, (), at_tail=False, end_of_segment=True)

    async def _gather(self, index: SegmentReadIndex, offset: int, wanted: int) -> list[memoryview]:
        """The bytes there are from ``offset`` on, up to ``wanted``; fewer or none if the segment changes meanwhile."""
        views: list[memoryview] = []
        position = index.collect(offset, min(offset + wanted, index.metadata.length), views)
        is_cold = position < index.metadata.length
        run = index.note_read(offset, min(offset + wanted, index.metadata.length)) if is_cold else 0
        self._budget.note_read(SegmentKey(self._metadata.container_id, index.metadata.segment_id), offset, run)
        while position < (end := min(offset + wanted, index.metadata.length)):
            try:
                piece = await self._fetcher.fetch(index, position, end, run)
            except (SegmentNotFound, BadOffset, SegmentTruncated):
                return views
            except PravegaError:
                if views:
                    return views
                raise
            views.append(piece[: end - position])
            position += len(views[-1])
            if index.is_dropped or index.target is not None or position < index.metadata.start_offset:
                return views
            position = index.collect(position, min(offset + wanted, index.metadata.length), views)
        if run:
            self._fetcher.read_ahead(index, position, run)
        return views

    @staticmethod
    def _result(index: SegmentReadIndex, offset: int, views: list[memoryview], wanted: int, waited: bool) -> ReadResult:
        metadata = index.metadata
        length = sum(map(len, views))
        ran_into_end = offset + length >= metadata.length and (length < wanted or waited)
        return ReadResult(
            offset,
            tuple(views),
            at_tail=ran_into_end and not metadata.is_sealed,
            end_of_segment=ran_into_end and metadata.is_sealed,
            has_waited=waited,
        )

    def _has_closed(self) -> bool:
        return self._is_closed

    # --- the indices -------------------------------------------------------------------------------------------------

    def _index(self, segment_id: int) -> SegmentReadIndex:
        """The index of a segment that the metadata knows; made on first use."""
        index = self._indices.get(segment_id)
        if index is None:
            metadata = self._metadata.segments.get(segment_id)
            if metadata is None:
                raise SegmentNotFound(f"#{segment_id}")
            index = self._indices[segment_id] = SegmentReadIndex(self._metadata.container_id, metadata, self._cache)
        return index

    def _live(self, segment_id: int) -> SegmentReadIndex:
        metadata = self._metadata.segments.get(segment_id)
        if metadata is None:
            raise SegmentNotFound(f"#{segment_id}")
        if metadata.is_merged:
            raise SegmentMerged(metadata.name)
        if metadata.is_deleted:
            raise SegmentNotFound(metadata.name)
        return self._index(segment_id)

    def _forget(self, index: SegmentReadIndex) -> None:
        for ghost in index.ghosts():
            self._indices.pop(ghost.metadata.segment_id, None)
        self._indices.pop(index.metadata.segment_id, None)
        self._to_wake.pop(index, None)

    def _wake_soon(self, index: SegmentReadIndex) -> None:
        """Wake the segment's waiting readers once, at the end of this turn of the loop."""
        if not index.waiters or index in self._to_wake:
            return
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake)
        self._to_wake[index] = None

    def _wake(self) -> None:
        to_wake, self._to_wake = self._to_wake, {}
        for index in to_wake:
            index.waiters.wake(index.metadata.length)
