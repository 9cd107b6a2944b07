"""Puts the parts of a store process together: the only module that knows every concrete class."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.store_load import StoreLoad
from pravega_common.services.cycle_collector import CycleCollector
from pravega_common.services.latency import LatencyCounts
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.settings import host_and_port
from pravega_common.services.tls import make_server_tls, problems_of
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.cache.rocksdb_cache import RocksDBSecondLevel
from segment_service.config import SegmentStoreConfig
from segment_service.container.manager import ContainerManager, ManagerConfig
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import ContainerConfig, SegmentContainer
from segment_service.container.start_counts import StartCounts
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.data_log import DurableDataLog
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.writer_data_source import WriterDataSource
from segment_service.cpo_access import configured_cpo
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.health.collector import StoreCollector
from segment_service.health.disk_space import DiskSpace
from segment_service.health.status_page import StatusPage
from segment_service.health.store_health import ClusterPlace, StoreHealth
from segment_service.health.store_load import load_of
from segment_service.health.tier2_probe import Tier2Probe
from segment_service.host.listener import WireServer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.open_files import raise_open_files
from segment_service.plog.cluster_registration import AskServer, ask_redis, asking_with, register_groups
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from segment_service.quotas.limits_watch import LimitsWatch
from segment_service.quotas.scope_buckets import ByteQuotas
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.read_index.fetch_budget import FetchBudget
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.measured_chunks import MeasuredChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.store import RoutedSegmentStore, check_container_count
from segment_service.tables.table_extension import TableExtension
from segment_service.tier1_memory_watch import Tier1MemoryWatch
from segment_service.tier1_settings_watch import Tier1SettingsWatch
from segment_service.traffic.monitor import TrafficMonitor
from segment_service.traffic.request_stream import WireRequestStream
from segment_service.traffic.stream_watch import StreamWatch
from segment_service.writer.config import WriterConfig, quiet_log_bytes, shared_flushes_at_once_max
from segment_service.writer.storage_writer import StorageWriter

no_key_warning: Final = (
    "no cluster key (security.cluster_key_file): everybody who reaches this port may read and delete the controllers' "
    "tables and every segment"
)


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The outside of a store process; tests put fakes here."""

    cpo: ControlPlaneOracle
    chunks: ChunkStorage
    make_log: Callable[[int, str], DurableDataLog]
    """From container id and store id."""
    clock: Clock
    groups: ChoiceByUse
    """The persistence groups, of which the least used ones get new plogs; none for logs in files."""
    ask_server: AskServer = ask_redis
    file_logs: FileLogFolder | None = None
    """The folder of logs in files; ``None`` for Redis."""


def real_parts(config: SegmentStoreConfig) -> StoreParts:
    """The Tier 1, Tier 2 and CPO that the settings name. Nothing is connected yet."""
    clock, access = SystemClock(), config.redis.access()
    cpo = configured_cpo(config, clock)
    chunks = make_chunk_storage(
        config.tier2.url,
        s3=config.tier2.s3_access,
        call_time_max_s=config.tier2.call_time_max_ms / 1000,
    )
    heal_time_max_s = config.tier1.heal_time_max_ms / 1000
    if config.tier1.folder is not None:
        file_logs = FileLogFolder(
            config.tier1.folder, plog_bytes=config.tier1.plog_bytes, call_time_max_s=heal_time_max_s
        )
        return StoreParts(
            cpo,
            chunks,
            lambda container_id, _: FileDataLog(container_id, file_logs, clock),
            clock,
            ChoiceByUse(),
            file_logs=file_logs,
        )
    settings = PlogSettings(
        block_bytes=config.tier1.plog_bytes,
        allow_unsafe_redis=config.tier1.allow_unsafe_redis,
        heal_time_max_s=heal_time_max_s,
        access=access,
    )
    groups = ChoiceByUse(config.tier1.persistence_groups)

    def make_log(container_id: int, store_id: str) -> DurableDataLog:
        return RedisDataLog(container_id, store_id, cpo, config.cluster.name, settings, clock, groups)

    return StoreParts(cpo, chunks, make_log, clock, groups, asking_with(access))


class SegmentStoreProcess(Service):
    """One store: wire server, containers, and its place in the cluster."""

    def __init__(self, config: SegmentStoreConfig, parts: StoreParts | None = None) -> None:
        super().__init__("segment-store")
        self._config = config
        self._parts = parts or real_parts(config)
        self._incarnation = secrets.token_hex(8)
        self._clock = clock = OracleClock(self._parts.clock)
        self._tier2 = MeasuredChunkStorage(self._parts.chunks, clock)
        self._tier2_probe = Tier2Probe(self._tier2, clock)
        self._loop_lag = LoopLag(clock)
        self._cycles = CycleCollector(clock)
        self.back_pressure = StoreBackPressure(config.store.unflushed_bytes_max)
        self.registry = ContainerRegistry()
        self._disk_cache = self._make_disk_cache()
        self._cache = CacheManager(
            InMemoryCacheStorage(config.cache.memory_bytes_max),
            self._disk_cache,
            lambda is_exceeded: self.back_pressure.hold("cache", is_exceeded),
        )
        self._map_cache = BlockCache()
        self._fetches = FetchBudget(self._cache)
        self._manager: ContainerManager | None = None
        self._starts, self._flushes = StartCounts(), LatencyCounts()
        self._disks = DiskSpace(config.disk_folders, clock)
        self._memory_watch = Tier1MemoryWatch(
            self._parts.groups, self.back_pressure, self.registry, self._clock, config.redis.access()
        )
        self._settings_watch = Tier1SettingsWatch(
            self._parts.groups,
            self.back_pressure,
            self.registry.log_groups,
            self._clock,
            config.redis.access(),
            is_off=config.tier1.allow_unsafe_redis,
        )
        self.quotas = ByteQuotas(clock)
        self._limits_watch = LimitsWatch(self.quotas, self._parts.cpo, clock)
        self.store = RoutedSegmentStore(self.registry, config.store.containers, self._is_stale)
        key_bytes_max = config.store.table_key_bytes_max
        self.tables = TableExtension(self.store, maps=self.store, key_bytes_max=key_bytes_max)
        self.registry.on_removed = lambda gone: self.spawn(self.tables.container_gone(gone), "forget-tables")
        self._tls = make_server_tls(config.tls, self._clock)
        self._tls_context = None if self._tls is None else self._tls.context
        self._tokens = config.security.tokens(self._clock, f"segment-store {config.store.id}".strip())
        self.open_files = raise_open_files(config.store.connections_max)
        self.wire = self._make_wire_server()
        self._traffic: TrafficMonitor | None = None
        self._streams = StreamWatch(
            lambda: self.registry,
            self.wire.times.reads_of,
            clock,
            config.store.metrics_streams_max if config.store.metrics else 0,
        )
        self.health = StoreHealth(
            self._place,
            self.registry,
            self._parts.groups.needed,
            self._memory_watch.silent_s,
            self._tier2,
            self.back_pressure,
            self._loop_lag,
            self.open_files.warning,
            lambda: problems_of(self._tls),
        )
        self.collector = self._make_collector()
        self._status_page = self._make_status_page()

    def _make_wire_server(self) -> WireServer:
        settings = self._config.store
        host, port = host_and_port(settings.listen)
        return WireServer(
            self.store,
            self.tables,
            self.back_pressure,
            host=host,
            port=port,
            clock=self._clock,
            connections_max=self.open_files.connections_max,
            connections_per_peer_max=settings.connections_per_peer_max,
            refusals_per_peer_per_s=settings.refusals_per_peer_per_s,
            tls=self._tls_context,
            tokens=self._tokens,
            authenticates=self._config.security.authentication,
            local_socket=settings.local_socket,
            quotas=self.quotas,
        )

    async def on_start(self) -> None:
        parts, config = self._parts, self._config
        if self._tokens is None:
            self.log.warning(no_key_warning)
        if self.open_files.warning:
            self.log.warning(self.open_files.warning)
        for part in (self._loop_lag, self._cycles):
            self.own(part)
            await part.start()
        if self._tls is not None:
            self.own(self._tls)
            await self._tls.start()
        if self._status_page is not None:
            self.own(self._status_page)
            await self._status_page.start()
        if parts.file_logs is None:
            wanted = config.tier1.persistence_groups
            parts.groups.saw(await register_groups(parts.cpo, config.cluster.name, wanted, parts.ask_server))
        else:
            self.own(parts.file_logs)
            await parts.file_logs.start()
        await self._tier2.start()
        self.own(self._tier2_probe)
        await self._tier2_probe.start()
        if self._disk_cache is not None:
            self.own(self._disk_cache)
            await self._disk_cache.start()
        await check_container_count(parts.cpo, self._tier2, config.store.containers, self._incarnation)
        self.own(self.wire)
        await self.wire.start()
        host, port = self.published
        manager_config = ManagerConfig(
            store_id=self.store_id,
            host=host,
            port=port,
            incarnation=self._incarnation,
            lease_ms=config.cluster.lease_ms,
            stale_read_max_ms=config.cluster.stale_read_max_ms,
            tls=config.tls.is_served,
        )
        self._manager = ContainerManager(
            manager_config,
            parts.cpo,
            self.registry,
            self._make_container,
            self._clock,
            self._load,
            self.health.problems,
            self._starts,
            self._cycles.note_dropped,
        )
        self.own(self._manager)
        await self._manager.start()
        for watch in (self._memory_watch, self._settings_watch, self._limits_watch):
            self.own(watch)
            await watch.start()
        self._traffic = self._make_traffic_monitor()
        self.own(self._traffic)
        await self._traffic.start()
        self.own(self._streams)
        await self._streams.start()
        self.log.info("segment store is up", store=self.store_id, published=f"{host}:{port}")

    async def on_stop(self) -> None:
        """Containers before sockets: their waiting reads end, and what was accepted becomes durable and is answered."""
        await self._streams.stop()
        if self._traffic is not None:
            await self._traffic.stop()
        if self._manager is not None:
            await self._manager.stop()
        await self._memory_watch.stop()
        await self._settings_watch.stop()
        await self._limits_watch.stop()
        await self.wire.stop()
        if self._status_page is not None:
            await self._status_page.stop()
        if self._tls is not None:
            await self._tls.stop()
        if self._disk_cache is not None:
            await self._disk_cache.stop()
        if self._parts.file_logs is not None:
            await self._parts.file_logs.stop()
        await self._tier2_probe.stop()
        await self._cycles.stop()
        await self._loop_lag.stop()
        await self._tier2.close()
        self._disks.close()
        await self._parts.cpo.close()

    def _make_disk_cache(self) -> RocksDBSecondLevel | None:
        cache = self._config.cache
        return RocksDBSecondLevel(Path(cache.disk_folder), cache.disk_bytes_max) if cache.disk_folder else None

    def _make_traffic_monitor(self) -> TrafficMonitor:
        parts, config = self._parts, self._config
        return TrafficMonitor(
            lambda: self.registry,
            WireRequestStream(parts.cpo, config.store.containers, self.store_id, config.tls.client(), self._tokens),
            config.auto_scale.settings,
            self._clock,
            lambda: secrets.randbits(63),
        )

    def _make_status_page(self) -> StatusPage | None:
        if not self._config.store.metrics:
            return None
        host, port = host_and_port(self._config.store.metrics)
        return StatusPage(
            host,
            port,
            self.registry,
            self.collector,
            self.health,
            self._not_serving,
            tls=self._tls_context,
            disks=self._disks,
        )

    def _make_collector(self) -> StoreCollector:
        return StoreCollector(
            self.registry,
            self.back_pressure,
            self._cache,
            self.wire,
            self._tier2,
            self._loop_lag,
            self._parts.groups,
            self._streams.streams,
            lambda: self._traffic,
            self._memory_watch.silent_s,
            self.health.problems,
            self._starts,
            self._flushes,
            self._disks,
            self._map_cache,
            self.tables,
        )

    def _load(self) -> StoreLoad:
        return load_of(
            self._clock.wall_ms(),
            self.registry,
            self.back_pressure,
            self._cache,
            self.wire,
            self._tier2,
            self._parts.groups,
        )

    def _place(self) -> ClusterPlace | None:
        manager = self._manager
        if manager is None:
            return None
        return ClusterPlace(manager.lease_left_s, manager.not_serving, self._clock.problem())

    @property
    def published(self) -> tuple[str, int]:
        """The address at which clients reach this store; known once it listens."""
        host, port = host_and_port(self._config.store.published or self._config.store.listen)
        return host, port or self.wire.port

    @property
    def store_id(self) -> str:
        host, port = self.published
        return self._config.store.id or f"{host}:{port}"

    def _not_serving(self) -> dict[int, dict[str, str]]:
        return {} if self._manager is None else self._manager.not_serving

    def _is_stale(self) -> bool:
        return self._manager is None or self._manager.is_stale

    def _make_container(self, container_id: int) -> SegmentContainer:
        parts, config = self._parts, self._config
        policy = CheckpointPolicy(config.tier1.checkpoint_operations, config.tier1.checkpoint_bytes)
        storage = RollingStorage(
            self._tier2,
            container_id,
            self._clock,
            shares_objects=config.tier2.share_small_objects,
        )
        return SegmentContainer(
            parts.make_log(container_id, self.store_id),
            storage,
            SortedRunMaps(container_id, self._tier2, storage, self._clock, self._map_cache),
            lambda metadata, storage, spawn, check_owner: ContainerReadIndex(
                metadata, storage, self._cache, spawn, check_owner, self._fetches
            ),
            self._make_writer,
            self.back_pressure,
            self._clock,
            ContainerConfig(checkpoints=policy),
        )

    def _make_writer(self, source: WriterDataSource, storage: SegmentStorage) -> StorageWriter:
        store, tier2 = self._config.store, self._config.tier2
        config = WriterConfig(
            flush_bytes=tier2.flush_bytes,
            flush_age_s=tier2.flush_age_ms / 1000,
            quiet_log_bytes=quiet_log_bytes(store.unflushed_bytes_max, store.containers),
            small_flushes_at_once_max=shared_flushes_at_once_max if tier2.share_small_objects else 0,
        )
        return StorageWriter(source, storage, self._clock, config, flushes=self._flushes)
