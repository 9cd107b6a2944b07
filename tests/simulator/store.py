"""A segment store process: whole containers over the simulated servers, kept running as a cluster keeps them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol, cast

from pravega_common.errors import PravegaError
from pravega_common.invariants import InvariantViolation
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import ContainerConfig, SegmentContainer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.store import RoutedSegmentStore
from segment_service.tables.table_extension import TableExtension
from segment_service.writer.storage_writer import StorageWriter
from tests.simulator.oracle import RemoteCPO
from tests.simulator.processes import Process
from tests.simulator.settings import Settings
from tests.simulator.tier2 import RemoteChunks
from tests.simulator.virtual_loop import VirtualClock

restart_pause_s = 0.5
cluster_name = "simulated"
group_name = "group-0"


class Witness(Protocol):
    """Whom a store tells what becomes of its containers."""

    def container_starting(self, store: Store, container_id: int) -> int:
        """Returns a number for this attempt."""
        ...

    def container_up(self, store: Store, attempt: int, epoch: int) -> None: ...

    def container_down(self, store: Store, attempt: int, error: BaseException | None) -> None: ...

    def owns(self, store: Store, container_id: int) -> bool:
        """Whether the cluster still wants this container here."""
        ...


class Store:
    """The memory of one store process; its crash leaves nothing of it."""

    def __init__(
        self,
        name: str,
        containers: Sequence[int],
        settings: Settings,
        servers: tuple[str, ...],
        cpo: RemoteCPO,
        chunks: RemoteChunks,
        clock: VirtualClock,
        witness: Witness,
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.containers = containers
        self.registry = ContainerRegistry()
        self.back_pressure = StoreBackPressure(settings.unflushed_bytes_max)
        self.segments = RoutedSegmentStore(self.registry, settings.containers, lambda: False)
        self.tables = TableExtension(self.segments, maps=self.segments)
        self.registry.on_removed = self._container_gone
        self._cache = CacheManager(InMemoryCacheStorage(settings.cache_bytes))
        self._settings = settings
        self._servers = servers
        self._plogs = PlogSettings(
            block_bytes=settings.plog_bytes,
            reply_timeout_s=settings.reply_timeout_s,
            heal_time_max_s=settings.heal_time_max_s,
        )
        self._cpo = cpo
        self._chunks = chunks
        self._clock = clock
        self._witness = witness

    def start(self) -> None:
        self.process.spawn(self._start(), "start")

    async def _start(self) -> None:
        """Register the persistence cluster, as every store does, and take the containers."""
        group = PersistenceGroup(group_name, self._servers)
        while True:
            try:
                await self._cpo.put_persistence_cluster(PersistenceCluster(cluster_name, (group,)))
                break
            except PravegaError:
                await asyncio.sleep(restart_pause_s)
        for container_id in self.containers:
            self.process.spawn(self._keep(container_id), f"container-{container_id}")

    def _container_gone(self, container: SegmentContainer) -> None:
        if self.process.is_alive:
            self.process.spawn(self.tables.container_gone(container), "forget-tables")

    def trim_cache(self) -> None:
        """Drop from the cache whatever may be dropped."""
        self._cache.trim(0)

    async def stop_container(self, container_id: int) -> None:
        container = self.registry.find(container_id)
        if container is not None:
            self.registry.remove(container)
            await container.stop()

    async def _keep(self, container_id: int) -> None:
        """Start the container again whenever it ends, as long as the cluster wants it here."""
        while self._witness.owns(self, container_id):
            attempt = self._witness.container_starting(self, container_id)
            error = await self._run(self._make(container_id), attempt)
            self._witness.container_down(self, attempt, error)
            await asyncio.sleep(restart_pause_s)

    async def _run(self, container: SegmentContainer, attempt: int) -> BaseException | None:
        try:
            await container.start()
        except (Exception, InvariantViolation) as error:
            return error
        if not container.is_running:
            return container.failure
        self.registry.add(container)
        self._witness.container_up(self, attempt, container.epoch)
        try:
            await container.wait_stopped()
        except (Exception, InvariantViolation) as error:
            return error
        finally:
            self.registry.remove(container)
        return None

    def _make(self, container_id: int) -> SegmentContainer:
        settings, clock = self._settings, self._clock
        rng = random.Random(f"{settings.seed} {self.name} {container_id}")
        cpo = cast(ControlPlaneOracle, self._cpo)
        storage = RollingStorage(self._chunks, container_id, clock, shares_objects=settings.shares_objects)
        return SegmentContainer(
            RedisDataLog(container_id, self.name, cpo, cluster_name, self._plogs, clock),
            storage,
            SortedRunMaps(container_id, self._chunks, storage, clock),
            lambda metadata, storage, spawn, check_owner: ContainerReadIndex(
                metadata, storage, self._cache, spawn, check_owner
            ),
            lambda source, storage: StorageWriter(source, storage, clock, settings.writer, rng),
            self.back_pressure,
            clock,
            ContainerConfig(checkpoints=settings.checkpoints, metadata_table=settings.metadata_table),
        )
