"""Serves health and metrics of a store over HTTP; numbers are read on request and counted nowhere else.

``GET /health``: JSON, status 200 while the store has its place in the cluster, 503 when not. A store with damaged
segments, or with plog servers that do not take part, is "degraded" and says which and why; its status stays 200, since
to restart it would mend nothing.
``GET /metrics``: Prometheus text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pravega_common.errors import ConfigurationError
from pravega_common.services.base import Service
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import SegmentContainer
from segment_service.host.listener import WireServer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.traffic.monitor import TrafficMonitor

request_bytes_max: Final = 64 * 1024
stop_grace_s: Final = 2.0
damaged_segments_max: Final = 1_000
"""Damaged segments that ``/health`` lists; ``/metrics`` counts all."""

_CONTAINER_GAUGES: Final[dict[str, tuple[str, Callable[[SegmentContainer], float]]]] = {
    "epoch": ("Epoch of the owner of the log", lambda one: one.epoch),
    "segments": ("Segments in memory", lambda one: len(one.metadata.ids)),
    "quarantined_segments": ("Segments damaged in Tier 2", lambda one: len(one.metadata.quarantine)),
    "queued_operations": ("Operations waiting to be packed", lambda one: len(one.durable_log.queue)),
    "queued_bytes": ("Bytes of appends waiting to be packed", lambda one: one.durable_log.queue.bytes),
    "unflushed_bytes": ("Durable bytes that Tier 2 does not have", lambda one: one.pending.unflushed),
    "unflushed_operations": ("Operations that Tier 2 did not acknowledge", lambda one: one.durable_log.memory_length),
    "under_replicated_plogs": (
        "Plogs that some server of their group is not known to have whole",
        lambda one: one.durable_log.replication.under_replicated_plogs,
    ),
    "plog_servers_out": (
        "Plog servers that do not take part in this container's log: away, empty or being repaired",
        lambda one: len(one.durable_log.replication.servers_out),
    ),
}
_CONTAINER_COUNTERS: Final[dict[str, tuple[str, Callable[[SegmentContainer], float]]]] = {
    "operations": ("Operations made durable by this owner", lambda one: one.durable_log.operations_total),
    "frames": ("Frames made durable by this owner", lambda one: one.durable_log.frames_total),
    "log_bytes": ("Bytes of frames made durable by this owner", lambda one: one.durable_log.bytes_total),
    "checkpoints": ("Checkpoints made durable by this owner", lambda one: one.durable_log.checkpoints_total),
    "loaded_segments": ("Segments brought back from the metadata table", lambda one: one.loader.loaded_total),
    "evicted_segments": ("Segments that left memory", lambda one: one.evictor.evicted_total),
    "index_appends": ("Appends to index segments made by this owner", lambda one: one.event_index.appends_total),
    "index_records": ("Event boundaries indexed by this owner", lambda one: one.event_index.records_total),
}


class StoreCollector(Collector):
    """The numbers of one store."""

    def __init__(
        self,
        registry: ContainerRegistry,
        back_pressure: StoreBackPressure,
        cache: CacheManager,
        wire: WireServer,
        traffic: Callable[[], TrafficMonitor | None] = lambda: None,
    ) -> None:
        self._wire = wire
        self._traffic = traffic
        self._registry = registry
        self._back_pressure = back_pressure
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        storage = self._cache.storage
        for name, text, value in (
            ("unflushed_bytes", "Bytes accepted and not in Tier 2", self._back_pressure.bytes),
            ("unflushed_bytes_limit", "Above it sockets are not read", self._back_pressure.bytes_max),
            (
                "unflushed_operations",
                "Operations that Tier 2 did not acknowledge, in all containers",
                self._back_pressure.operations,
            ),
            ("unflushed_operations_limit", "Above it sockets are not read", self._back_pressure.operations_max),
            (
                "held_bytes",
                "Memory of what Tier 2 does not have: bytes, and a fixed cost of each operation",
                self._back_pressure.held_bytes,
            ),
            (
                "held_by_cache",
                "1 while the cache is above its budget with nothing to evict, and sockets are not read",
                float("cache" in self._back_pressure.held_by),
            ),
            ("cache_bytes", "Capacity and overhead of all blocks in the cache", storage.bytes_used),
            ("cache_bytes_limit", "Budget of the cache", storage.bytes_max),
            ("containers", "Containers that run here", len(self._registry)),
        ):
            yield GaugeMetricFamily(f"pravega_store_{name}", text, value=value)
        level = self._cache.second_level
        if level is not None:
            yield GaugeMetricFamily("pravega_store_cache_disk_bytes", "Blocks on disk", value=level.bytes_used)
            text = "Bytes read from the cache on disk instead of Tier 2"
            yield CounterMetricFamily("pravega_store_cache_disk_read_bytes", text, value=level.bytes_read)
        yield from self._of_connections()
        yield from self._of_traffic()
        containers = list(self._registry)
        for name, (text, read) in _CONTAINER_GAUGES.items():
            yield _filled(GaugeMetricFamily(f"pravega_container_{name}", text, labels=["container"]), containers, read)
        for name, (text, read) in _CONTAINER_COUNTERS.items():
            yield _filled(
                CounterMetricFamily(f"pravega_container_{name}", text, labels=["container"]), containers, read
            )

    def _of_connections(self) -> Iterator[Metric]:
        wire, budgets = self._wire, self._wire.budgets
        for name, text, value in (
            ("connections", "Connections", wire.connection_count),
            ("connections_limit", "Above it only controllers are served", wire.admission.connections_max),
            ("waiting_reads", "Reads that are served or wait for bytes", budgets.reads),
            ("waiting_reads_limit", "Above it reads are refused", budgets.reads_max),
            ("requests_in_flight_bytes", "Bytes of requests that are not answered", budgets.in_flight.bytes),
            ("open_frames_bytes", "Bytes of large frames that are not complete", budgets.open_frames.bytes),
            ("unsent_replies_bytes", "Reply bytes that peers have not taken", budgets.unsent.bytes),
        ):
            yield GaugeMetricFamily(f"pravega_store_{name}", text, value=value)
        for name, text, value in (
            ("refused_connections", "Connections refused at the limit", wire.admission.refused_total),
            ("refused_reads", "Reads refused at the limit", budgets.refused_reads),
            ("cut_connections", "Slow peers cut", budgets.open_frames.cut_total + budgets.unsent.cut_total),
        ):
            yield CounterMetricFamily(f"pravega_store_{name}", text, value=value)

    def _of_traffic(self) -> Iterator[Metric]:
        traffic = self._traffic()
        if traffic is None:
            return
        text = "Segments whose rate may scale their stream"
        yield GaugeMetricFamily("pravega_store_watched_segments", text, value=traffic.watched_segments)
        text = "Hot and cold segments reported to the controllers"
        yield CounterMetricFamily("pravega_store_traffic_reports", text, value=traffic.written_total)
        text = "Reports that could not be written; the next tick makes them again"
        yield CounterMetricFamily("pravega_store_traffic_reports_dropped", text, value=traffic.dropped_total)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    containers: list[SegmentContainer],
    read: Callable[[SegmentContainer], float],
) -> Metric:
    for container in containers:
        family.add_metric([str(container.container_id)], read(container))
    return family


class StatusPage(Service):
    """Serves both paths. ``port`` is the bound one after the start; ``is_stale`` as of the container manager."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: ContainerRegistry,
        collector: StoreCollector,
        is_stale: Callable[[], bool],
        not_serving: Callable[[], Mapping[int, Mapping[str, str]]],
        *,
        warning: str = "",
    ) -> None:
        """``warning``: what the operator should change; shown by ``/health``, which stays "up"."""
        super().__init__("status-page")
        self.host = host
        self.port = port
        self._containers = registry
        self._is_stale = is_stale
        self._not_serving = not_serving
        self._warning = warning
        self._metrics = CollectorRegistry(auto_describe=False)
        self._metrics.register(collector)
        self._runner: web.AppRunner | None = None

    async def on_start(self) -> None:
        application = web.Application(client_max_size=request_bytes_max)
        application.add_routes([web.get("/health", self._get_health), web.get("/metrics", self._get_metrics)])
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=stop_grace_s)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port).start()
        except OSError as error:
            raise ConfigurationError(
                f"store.metrics = {self.host}:{self.port}: cannot listen there: {error}"
            ) from error
        self.port = int(self._runner.addresses[0][1])

    async def on_stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _get_health(self, _request: web.Request) -> web.Response:
        is_stale = self._is_stale()
        damaged = [
            {"container": one.container_id, "segment": name, "reason": reason}
            for one in self._containers
            for name, reason in one.metadata.quarantine
        ]
        servers_out: dict[str, str] = {}
        for one in self._containers:
            servers_out.update(one.durable_log.replication.servers_out)
        body: dict[str, Any] = {
            "status": "stale" if is_stale else "degraded" if damaged or servers_out else "up",
            "containers": {
                **{str(container_id): dict(state) for container_id, state in self._not_serving().items()},
                **{str(one.container_id): {"state": one.state.value, "epoch": one.epoch} for one in self._containers},
            },
        }
        if self._warning:
            body["warning"] = self._warning
        if damaged:
            body["damaged_segments"] = damaged[:damaged_segments_max]
        if servers_out:
            body["plog_servers_out"] = servers_out
        return web.json_response(body, status=503 if is_stale else 200)

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})
