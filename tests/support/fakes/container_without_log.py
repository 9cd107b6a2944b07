"""A container without a log: metadata, read index and Tier 2, changed in the order that the real one uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pravega_common.services.base import Service
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.read_index.container_read_index import ContainerReadIndex
from tests.support.fakes.segment_storage import FakeSegmentStorage


class FakeContainer:
    def __init__(self, service: Service, cache_bytes: int) -> None:
        self.metadata = ContainerMetadata(0)
        self.storage = FakeSegmentStorage()
        self.cache = CacheManager(InMemoryCacheStorage(cache_bytes))
        self.index = ContainerReadIndex(self.metadata, self.storage, self.cache, service.spawn, self.check_owner)

    async def check_owner(self) -> None:
        """Nobody takes over."""

    def create(self, name: str) -> int:
        segment_id = self.metadata.next_segment_id
        self.metadata.next_segment_id += 1
        self.metadata.segments[segment_id] = SegmentMetadata(segment_id, name)
        return segment_id

    def append(self, segment_id: int, data: bytes) -> None:
        segment = self.metadata.segments[segment_id]
        offset, segment.length = segment.length, segment.length + len(data)
        self.index.append(segment_id, offset, [data])

    def seal(self, segment_id: int) -> None:
        self.metadata.segments[segment_id].is_sealed = True
        self.index.seal(segment_id)

    def truncate(self, segment_id: int, offset: int) -> None:
        self.metadata.segments[segment_id].start_offset = offset
        self.index.truncate(segment_id, offset)

    def delete(self, segment_id: int) -> None:
        self.metadata.segments[segment_id].is_deleted = True
        self.index.delete(segment_id)

    def merge(self, target_id: int, source_id: int) -> None:
        target, source = self.metadata.segments[target_id], self.metadata.segments[source_id]
        offset = target.length
        target.length += source.length
        source.is_merged = source.is_sealed = True
        self.index.merge(target_id, offset, source_id, source.length)

    async def flush(self, segment_id: int, length: int | None = None) -> None:
        """Do as the storage writer does with appends: cached bytes to Tier 2, then the storage length."""
        segment = self.metadata.segments[segment_id]
        length = segment.length if length is None else length
        start = max(segment.storage_length, segment.start_offset)
        stored = self.storage.segments.setdefault(segment_id, bytearray())
        stored.extend(bytes(max(0, start - len(stored))))
        if length > start:
            await self.storage.write(segment_id, start, self.index.read_cached(segment_id, start, length - start))
        segment.set_storage_length(length)
        self.index.storage_length_changed(segment_id)

    def evict(self) -> int:
        return self.cache.trim(0)


@asynccontextmanager
async def container(cache_bytes: int = 64 * 1024 * 1024) -> AsyncIterator[FakeContainer]:
    service = Service("fake-container")
    await service.start()
    fake = FakeContainer(service, cache_bytes)
    try:
        yield fake
        if service.failure is not None:
            raise service.failure
    finally:
        fake.index.close()
        await service.stop()


def joined(views: tuple[memoryview, ...] | list[memoryview]) -> bytes:
    return b"".join(views)
