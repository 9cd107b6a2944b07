"""Collects the metrics of a store; numbers are read on request and counted nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pravega_common.runtime.heap import heap_use
from pravega_common.services.latency import LatencyCounts, latency_family
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.problems import Problem, is_ready, problem_family
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import SegmentContainer
from segment_service.container.start_counts import StartCounts
from segment_service.health.disk_space import DiskSpace
from segment_service.host.listener import WireServer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.sorted_runs.block_cache import BlockCache
from segment_service.storage.measured_chunks import MeasuredChunkStorage
from segment_service.tables.table_extension import TableExtension
from segment_service.traffic.busiest_streams import BusiestStreams, StreamTraffic
from segment_service.traffic.monitor import TrafficMonitor

_CONTAINER_GAUGES: Final[dict[str, tuple[str, Callable[[SegmentContainer], float]]]] = {
    "epoch": ("Epoch of the owner of the log", lambda one: one.epoch),
    "segments": ("Segments in memory", lambda one: len(one.metadata.ids)),
    "many_writers_attributes": (
        "Attributes in memory of segments that have 500 of them or more",
        lambda one: one.metadata.held.in_many,
    ),
    "quarantined_segments": ("Segments damaged in Tier 2", lambda one: len(one.metadata.damaged_segments())),
    "unswept_segments": (
        "Segments whose garbage in Tier 2 the last sweep left: something of them is damaged, or a merge does not end",
        lambda one: one.unswept_segments,
    ),
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
    "tier1_failures": (
        "Times that Tier 1 failed an append, or had no room for it, and the log went on in another plog",
        lambda one: one.durable_log.failures_total,
    ),
    "checkpoints": ("Checkpoints made durable by this owner", lambda one: one.durable_log.checkpoints_total),
    "loaded_segments": ("Segments brought back from the metadata table", lambda one: one.loader.loaded_total),
    "evicted_segments": ("Segments that left memory", lambda one: one.evictor.evicted_total),
    "evicted_attributes": ("Writers' attributes that left memory", lambda one: one.attributes.evicted_total),
    "read_attributes": ("Writers' attributes looked up in Tier 2", lambda one: one.attributes.read_total),
    "attribute_look_ups": (
        "Look-ups in attribute indexes, each for all that one call lacked",
        lambda one: one.attributes.look_ups_total,
    ),
    "sweep_failures": (
        "Sweeps of Tier 2 for garbage that failed; an owner tries ten times",
        lambda one: one.sweep_failures,
    ),
    "index_appends": ("Appends to index segments made by this owner", lambda one: one.event_index.appends_total),
    "index_records": ("Event boundaries indexed by this owner", lambda one: one.event_index.records_total),
}
_STREAM_COUNTERS: Final[dict[str, tuple[str, Callable[[StreamTraffic], float]]]] = {
    "in_bytes": (
        "Bytes that the segments here of a stream took in, those of transactions with their merge",
        lambda one: one.in_bytes,
    ),
    "in_events": (
        "Events that the segments here of a stream took in, as writers counted them",
        lambda one: one.in_events,
    ),
    "out_bytes": ("Bytes of a stream that were sent to readers from here", lambda one: one.out_bytes),
}
other_streams: Final = "_other"
"""The label of all streams that are not among the busiest; no stream has it, since those have a slash."""


class StoreCollector(Collector):
    """The numbers of one store."""

    def __init__(
        self,
        registry: ContainerRegistry,
        back_pressure: StoreBackPressure,
        cache: CacheManager,
        wire: WireServer,
        tier2: MeasuredChunkStorage,
        loop_lag: LoopLag,
        groups: ChoiceByUse,
        streams: BusiestStreams,
        traffic: Callable[[], TrafficMonitor | None] = lambda: None,
        silent_s: Callable[[str], float] = lambda server: 0.0,
        problems: Callable[[], Sequence[Problem]] = list,
        starts: StartCounts | None = None,
        flushes: LatencyCounts | None = None,
        disks: DiskSpace | None = None,
        map_cache: BlockCache | None = None,
        tables: TableExtension | None = None,
    ) -> None:
        """``silent_s``: how long a server of Tier 1 has not answered. ``problems``: those that health names.
        ``starts``, ``flushes``: of containers, and of segments to Tier 2. ``disks``: what the store writes to.
        ``map_cache``: what is decoded of the maps in Tier 2. ``tables``: those whose keys are in memory."""
        self._starts = starts or StartCounts()
        self._flushes = flushes or LatencyCounts()
        self._disks = disks
        self._map_cache = BlockCache() if map_cache is None else map_cache
        self._tables = tables
        self._problems = problems
        self._silent_s = silent_s
        self._tier2 = tier2
        self._loop_lag = loop_lag
        self._groups = groups
        self._streams = streams
        self._wire = wire
        self._traffic = traffic
        self._registry = registry
        self._back_pressure = back_pressure
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        problems = self._problems()
        text = "1 while the store does its work"
        yield GaugeMetricFamily("pravega_store_ready", text, value=float(is_ready(problems)))
        yield problem_family("pravega_store_problem", problems)
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
            ("map_cache_bytes", "Decoded parts of maps in Tier 2, for look-ups", self._map_cache.bytes_used),
            ("map_cache_bytes_limit", "Budget of those", self._map_cache.bytes_max),
            ("containers", "Containers that run here", len(self._registry)),
        ):
            yield GaugeMetricFamily(f"pravega_store_{name}", text, value=value)
        yield from _of_memory()
        level = self._cache.second_level
        used, got = (0, 0) if level is None else (level.bytes_used, level.bytes_read)
        yield GaugeMetricFamily("pravega_store_cache_disk_bytes", "Blocks in the cache on disk", value=used)
        text = "Bytes read from the cache on disk instead of Tier 2"
        yield CounterMetricFamily("pravega_store_cache_disk_read_bytes", text, value=got)
        yield from self._of_containers()
        yield from self._of_disks()
        yield from self._of_connections()
        yield from self._of_requests()
        yield from self._of_tier1()
        yield from self._of_tier2()
        lag = [((), self._loop_lag.counts)]
        yield latency_family("pravega_store_loop_lag_seconds", "How late the loop runs what is due", (), lag)
        yield from self._of_tables()
        yield from self._of_traffic()
        yield from self._of_streams()
        containers = list(self._registry)
        for name, (text, read) in _CONTAINER_GAUGES.items():
            yield _filled(GaugeMetricFamily(f"pravega_container_{name}", text, labels=["container"]), containers, read)
        for name, (text, read) in _CONTAINER_COUNTERS.items():
            yield _filled(
                CounterMetricFamily(f"pravega_container_{name}", text, labels=["container"]), containers, read
            )

    def _of_containers(self) -> Iterator[Metric]:
        text = "From the start of a container to the first request that it takes"
        yield latency_family("pravega_store_recovery_seconds", text, (), [((), self._starts.recoveries)])
        text = "Containers that failed at their start or later; they are tried again"
        yield CounterMetricFamily("pravega_store_container_failures", text, value=self._starts.failures)

    def _of_disks(self) -> Iterator[Metric]:
        size = GaugeMetricFamily(
            "pravega_store_disk_bytes", "Size of a file system that the store writes to", labels=["use"]
        )
        text = "What is free of it for the store"
        free = GaugeMetricFamily("pravega_store_disk_free_bytes", text, labels=["use"])
        known = {} if self._disks is None else self._disks.known
        for use, space in known.items():
            size.add_metric([use], space.bytes)
            free.add_metric([use], space.free)
        yield from (size, free)

    def _of_connections(self) -> Iterator[Metric]:
        wire, budgets = self._wire, self._wire.budgets
        for name, text, value in (
            ("connections", "Connections", wire.connection_count),
            ("connections_limit", "Above it only controllers are served", wire.admission.connections_max),
            ("waiting_reads", "Reads that are served or wait for bytes", budgets.reads),
            ("waiting_reads_limit", "Above it reads are refused", budgets.reads_max),
            ("writers", "Writers that are set up on connections", budgets.writers.total),
            ("writers_limit", "Above it writers are refused", budgets.writers.total_max),
            ("requests_in_flight_bytes", "Bytes of requests that are not answered", budgets.in_flight.bytes),
            ("open_frames_bytes", "Bytes of large frames that are not complete", budgets.open_frames.bytes),
            ("unsent_replies_bytes", "Reply bytes that peers have not taken", budgets.unsent.bytes),
        ):
            yield GaugeMetricFamily(f"pravega_store_{name}", text, value=value)
        for name, text, value in (
            ("refused_connections", "Connections refused at the limit", wire.admission.refused_total),
            ("refused_reads", "Reads refused at the limit", budgets.refused_reads),
            ("refused_writers", "Set-ups of writers refused at the limit", budgets.writers.refused_total),
            (
                "held_back_connections",
                "Pauses in which a connection was not read, as too much of its host was refused",
                budgets.refusals.held_back_total,
            ),
            ("cut_connections", "Slow peers cut", budgets.open_frames.cut_total + budgets.unsent.cut_total),
        ):
            yield CounterMetricFamily(f"pravega_store_{name}", text, value=value)

        throttled = CounterMetricFamily(
            "pravega_store_quota_throttled_seconds",
            "Time that connections (in) and answers to reads (out) waited for the bytes a second of their scopes",
            labels=["direction"],
        )
        throttled.add_metric(["in"], wire.quotas.inward.throttled_s)
        throttled.add_metric(["out"], wire.quotas.outward.throttled_s)
        yield throttled

    def _of_requests(self) -> Iterator[Metric]:
        times = self._wire.times
        text = "From the arrival of an append to its acknowledgement; one append of each writer at a time is timed"
        yield latency_family("pravega_store_append_seconds", text, (), [((), times.appends)])
        text = "To read bytes that are there; reads that wait at the tail are not counted"
        yield latency_family("pravega_store_read_seconds", text, (), [((), times.reads)])
        text = "To answer a request, appends and reads apart"
        requests = (((command,), counts) for command, counts in sorted(times.requests.items()))
        yield latency_family("pravega_store_request_seconds", text, ("command",), requests)
        text = "Bytes of segments sent to readers"
        yield CounterMetricFamily("pravega_store_read_bytes", text, value=times.read_bytes)

    def _of_tier1(self) -> Iterator[Metric]:
        frames = (((str(one.container_id),), one.durable_log.frame_latencies) for one in self._registry)
        text = "From sending a frame to Tier 1 to its being durable there"
        yield latency_family("pravega_container_frame_seconds", text, ("container",), frames)
        used = GaugeMetricFamily(
            "pravega_store_tier1_used_bytes", "Memory that a Redis of Tier 1 uses", labels=["server"]
        )
        text = "Its maxmemory; 0 for no limit"
        limit = GaugeMetricFamily("pravega_store_tier1_limit_bytes", text, labels=["server"])
        for server, memory in sorted(self._groups.memory.items()):
            used.add_metric([server], memory.used)
            limit.add_metric([server], memory.limit)
        text = "How long a Redis of Tier 1 has not answered"
        silent = GaugeMetricFamily("pravega_store_tier1_silent_seconds", text, labels=["server"])
        needed = self._groups.needed(self._registry.log_groups())
        for server in sorted(server for servers in needed.values() for server in servers):
            silent.add_metric([server], self._silent_s(server))
        yield from (used, limit, silent)

    def _of_tier2(self) -> Iterator[Metric]:
        tier2 = self._tier2
        text = "To write what a segment has for Tier 2, up to one write of it"
        yield latency_family("pravega_store_flush_seconds", text, (), [((), self._flushes)])
        text = "Calls to Tier 2 that succeeded"
        calls = (((call,), counts) for call, counts in tier2.latencies.items())
        yield latency_family("pravega_store_tier2_call_seconds", text, ("call",), calls)
        failures = CounterMetricFamily(
            "pravega_store_tier2_failures", "Calls that Tier 2 could not answer", labels=["call"]
        )
        for call in tier2.latencies:
            failures.add_metric([call], tier2.failures[call])
        yield failures
        text = "How long all calls to Tier 2 have failed; 0 if the last one succeeded"
        yield GaugeMetricFamily("pravega_store_tier2_failing_seconds", text, value=tier2.failing_s)
        for name, text, value in (
            ("put", "Bytes put to Tier 2", tier2.put_bytes),
            ("got", "Bytes read from Tier 2", tier2.got_bytes),
        ):
            yield CounterMetricFamily(f"pravega_store_tier2_{name}_bytes", text, value=value)

    def _of_traffic(self) -> Iterator[Metric]:
        traffic = self._traffic()
        watched, written, dropped = (
            (0, 0, 0) if traffic is None else (traffic.watched_segments, traffic.written_total, traffic.dropped_total)
        )
        text = "Segments whose rate may scale their stream"
        yield GaugeMetricFamily("pravega_store_watched_segments", text, value=watched)
        text = "Hot and cold segments reported to the controllers"
        yield CounterMetricFamily("pravega_store_traffic_reports", text, value=written)
        text = "Reports that could not be written; the next tick makes them again"
        yield CounterMetricFamily("pravega_store_traffic_reports_dropped", text, value=dropped)

    def _of_tables(self) -> Iterator[Metric]:
        used = limit = forgotten = 0
        if (tables := self._tables) is not None:
            used, limit, forgotten = tables.key_bytes, tables.key_bytes_max, tables.forgotten_total
        yield GaugeMetricFamily("pravega_store_table_key_bytes", "Memory of the keys of all tables", value=used)
        yield GaugeMetricFamily("pravega_store_table_key_bytes_limit", "Budget of those", value=limit)
        text = "Tables whose keys left memory to make room; they are read again when they are used"
        yield CounterMetricFamily("pravega_store_forgotten_tables", text, value=forgotten)

    def _of_streams(self) -> Iterator[Metric]:
        for name, (text, read) in _STREAM_COUNTERS.items():
            family = CounterMetricFamily(f"pravega_store_stream_{name}", text, labels=["stream"])
            for stream, counts in self._streams.listed.items():
                family.add_metric([stream], read(counts))
            family.add_metric([other_streams], read(self._streams.others))
            yield family


def _of_memory() -> Iterator[Metric]:
    """The memory in use, beside that which the process keeps: resident memory grows with both."""
    heap = heap_use()
    if heap is not None:
        text = "Memory of the C library in use, buffers above all"
        yield GaugeMetricFamily("pravega_store_heap_used_bytes", text, value=heap.used)
        text = "Memory of the C library that is free, and kept for what comes next"
        yield GaugeMetricFamily("pravega_store_heap_free_bytes", text, value=heap.free)
    text = "Pieces of memory that Python's objects have"
    yield GaugeMetricFamily("pravega_store_python_blocks", text, value=sys.getallocatedblocks())


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    containers: list[SegmentContainer],
    read: Callable[[SegmentContainer], float],
) -> Metric:
    for container in containers:
        family.add_metric([str(container.container_id)], read(container))
    return family
