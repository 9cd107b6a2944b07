"""Makes a container on in-memory fakes, and the store around it: everything but the servers is the real thing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pravega_common.errors import ContainerOffline
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.segment_container import ContainerConfig, SegmentContainer, WriterFactory
from segment_service.contracts.data_log import DurableDataLog
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.segment_store import SegmentStore
from segment_service.contracts.writer_data_source import WriterDataSource
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.storage_writer import StorageWriter, WriterConfig
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage


class IdleWriter(Service):
    """A storage writer that writes nothing: Tier 2 stands still."""

    def __init__(self, source: WriterDataSource, storage: SegmentStorage) -> None:
        super().__init__("idle-writer")
        self.source = source
        self.storage = storage

    async def flush(self, sequence_number: int) -> None:
        raise ContainerOffline(f"nothing comes to Tier 2, and so does {sequence_number} not")


class ContainerKit:
    """The parts that outlive a container: its log and Tier 2. ``open`` makes the next owner."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        unflushed_bytes_max: int = 32 * 1024 * 1024,
        checkpoints: CheckpointPolicy | None = None,
        plog_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self.logs = InMemoryLogStore(plog_bytes)
        self.clock = clock or SystemClock()
        self.stored = InMemoryChunkStorage()
        self.chunks = FaultyChunkStorage(self.stored, random.Random(7), self.clock)
        self.cache_bytes = cache_bytes
        self.back_pressure = StoreBackPressure(unflushed_bytes_max)
        self.config = ContainerConfig(
            checkpoints=checkpoints or CheckpointPolicy(), storage_retry_s=0.01, stop_flush_max_s=0.0
        )
        self.writer_factory: WriterFactory = IdleWriter
        self.background = False
        """Whether Tier 2 collects garbage, compacts and sweeps by itself."""
        self.shares_objects = False
        """Whether small objects in Tier 2 share large ones."""
        self.cache: CacheManager | None = None
        """That of the container made last."""

    def write_to_tier2(self, config: WriterConfig | None = None) -> None:
        """Let the containers opened from now on have a real storage writer."""
        config = config or WriterConfig(
            flush_age_s=0.02,
            quiet_age_ratio=1.0,
            transaction_age_s=0.2,
            merge_age_s=0.02,
            gather_s=0.02,
            tick_s=0.01,
            retry_delay_min_s=0.01,
            retry_delay_max_s=0.05,
        )
        self.writer_factory = lambda source, storage: StorageWriter(source, storage, self.clock, config)

    def make_log(self, container_id: int) -> DurableDataLog:
        return InMemoryDataLog(container_id, self.logs)

    def make_storage(self, container_id: int) -> RollingStorage:
        return RollingStorage(
            self.chunks, container_id, self.clock, background=self.background, shares_objects=self.shares_objects
        )

    def make(self, container_id: int = 0) -> SegmentContainer:
        cache = self.cache = CacheManager(InMemoryCacheStorage(self.cache_bytes))
        storage = self.make_storage(container_id)
        return SegmentContainer(
            self.make_log(container_id),
            storage,
            SortedRunMaps(container_id, self.chunks, storage, self.clock),
            lambda metadata, storage, spawn, check_owner: ContainerReadIndex(
                metadata, storage, cache, spawn, check_owner
            ),
            self.writer_factory,
            self.back_pressure,
            self.clock,
            self.config,
        )

    async def open(self, container_id: int = 0) -> SegmentContainer:
        container = self.make(container_id)
        await container.start()
        return container


async def leave_memory(container: SegmentContainer, *names: str) -> None:
    """Let every segment that may leave memory leave it; these must, without names all."""
    for _ in range(2_000):
        await container.table.flush()
        await container.evictor.evict_idle()
        if not any(name in container.metadata.ids for name in names or tuple(container.metadata.ids)):
            return
        await container.durable_log.barrier()
        await asyncio.sleep(0.002)  # the storage writer has a clock of its own
    raise AssertionError(f"still in memory: {container.metadata.ids}")


async def read_all(store: SegmentStore, segment: str, offset: int = 0) -> bytes:
    """All bytes from ``offset`` to the end there is now."""
    end = (await store.get_info(segment)).length
    parts: list[bytes] = []
    while offset < end:
        result = await store.read(segment, offset, end - offset)
        parts.append(join(result.data))
        offset += result.length
    return b"".join(parts)


def join(views: Sequence[memoryview]) -> bytes:
    return b"".join(bytes(view) for view in views)
