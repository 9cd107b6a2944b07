"""Composes a controller: makes every part, starts them in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final, Protocol

import structlog

from controller_service.api.grpc.access_guard import AccessControl
from controller_service.api.grpc.call_limits import CallCounts
from controller_service.api.grpc.cluster_health_api import ClusterHealthApi
from controller_service.api.grpc.commit_operations_api import CommitOperationsApi
from controller_service.api.grpc.connection_watch import ConnectionWatch
from controller_service.api.grpc.controller_service_api import ControllerServiceApi
from controller_service.api.grpc.parts import ApiParts, HostStore, Workflows
from controller_service.api.grpc.scope_quotas_api import ScopeQuotasApi
from controller_service.api.grpc.server import GrpcServer
from controller_service.api.grpc.stream_lags_api import StreamLagsApi
from controller_service.api.grpc.transaction_sets_api import TransactionSetsApi
from controller_service.api.refused_calls import RefusedCalls
from controller_service.api.rest.health import HealthRegistry
from controller_service.api.rest.server import RestServer
from controller_service.buckets.history_expiry import HistoryExpiry
from controller_service.buckets.retention_job import RetentionJob
from controller_service.buckets.stream_retention import StreamRetention
from controller_service.cluster.assignment_leader import AssignmentLeader
from controller_service.cluster.controller_health import ControllerHealth
from controller_service.cluster.host_store import AssignmentHostStore
from controller_service.cluster.membership import Membership
from controller_service.cluster.placement import Placement
from controller_service.config import ControllerConfig, StoreKind
from controller_service.event_processors.event_processor_group import EventProcessorGroup
from controller_service.event_processors.internal_streams import InternalStreams
from controller_service.event_processors.request_events import RequestEvent
from controller_service.event_processors.request_stream import Instance, WireClients, request_processors
from controller_service.lag.known_subscribers import KnownSubscribers
from controller_service.queue.table_request_queue import TableRequestQueue
from controller_service.repair.commit_repair import CommitRepair
from controller_service.segment_access.revisioned_segments import RevisionedSegments
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.segment_access.wire_revisions import WireRevisionedSegments
from controller_service.sets.known_sinks import KnownSinks
from controller_service.sets.transaction_set_service import TransactionSetService
from controller_service.store.byte_limits import ByteLimitsRecord
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.stream_store import StreamStore
from controller_service.store.table_backend import TableVersionedStore
from controller_service.store.versioned_store import VersionedStore
from controller_service.store.writer_marks import WriterMarks
from controller_service.transactions.commit_marks import CommitMarks
from controller_service.transactions.lifecycle import TransactionService
from controller_service.watermarks.mark_segment import MarkSegments
from controller_service.watermarks.stream_watermarks import StreamWatermarks
from controller_service.watermarks.watermark_ages import WatermarkAges
from controller_service.watermarks.watermark_job import WatermarkJob
from controller_service.window.parts import WindowParts
from controller_service.workflows.auto_scale import AutoScale
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_scope import DeleteScope
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.key_value_tables import KeyValueTables
from controller_service.workflows.reader_groups import ReaderGroups
from controller_service.workflows.remove_stream import StreamRemoval
from controller_service.workflows.scale_stream import ScaleStream
from controller_service.workflows.scope_quota import SetScopeQuota
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.truncate_stream import TruncateStream
from controller_service.workflows.update_stream import UpdateStream
from pravega_common.errors import ConfigurationError
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import SYSTEM_SCOPE
from pravega_common.proto.cluster_health_pb2_grpc import add_ClusterHealthServicer_to_server
from pravega_common.proto.commit_operations_pb2_grpc import add_CommitOperationsServicer_to_server
from pravega_common.proto.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from pravega_common.proto.scope_quotas_pb2_grpc import add_ScopeQuotasServicer_to_server
from pravega_common.proto.stream_lags_pb2_grpc import add_StreamLagsServicer_to_server
from pravega_common.proto.transaction_sets_pb2_grpc import add_TransactionSetsServicer_to_server
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.failpoints import arm_from_environment
from pravega_common.runtime.lasting_imports import lasting_imports
from pravega_common.services.audit_log import AuditLog
from pravega_common.services.base import Service
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.factory import make_cpo
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY, Member
from pravega_common.services.http_connections import ConnectionLimits
from pravega_common.services.logs import LogSection, set_up_log
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.retrying import RetryLimits, retry, unlimited
from pravega_common.services.settings import host_and_port
from pravega_common.services.systemd import SystemdNotices
from pravega_common.services.tls import make_server_tls, problems_of
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient

stores_poll_s: Final = 0.2
stores_log_period_s: Final = 5.0
watermark_runs_kept: Final = 3
"""Runs of the watermark job after which a stream that none of them met is forgotten."""
system_tables_limits: Final = RetryLimits(attempts_max=unlimited, pause_s=lambda failed: 1.0)


class Closeable(Protocol):
    """A client with connections."""

    def close(self) -> None:
        """Close them. May be called twice."""
        ...


class Hosts(HostStore, Protocol):
    @property
    def placement(self) -> Placement:
        """The containers and their stores, as of the last look."""
        ...

    @property
    def ownerless(self) -> Sequence[int]:
        """The containers that no live store owns."""
        ...

    async def look_again(self) -> None:
        """Look now, unless that was done a moment ago."""
        ...


@dataclass(frozen=True)
class Backends:
    """The adapters that a controller stands on. ``services`` are started before everything else, in order.

    ``clients``: None for a controller that reads no internal streams. ``revisions``: None for one without watermarks.
    ``connected``: what holds connections to segment stores.
    """

    cpo: ControlPlaneOracle
    hosts: Hosts
    tables: VersionedStore
    access: SegmentAccess
    clock: OracleClock
    random: Random
    services: Sequence[Service] = ()
    clients: WireClients | None = None
    revisions: RevisionedSegments | None = None
    connected: Sequence[Closeable] = ()

    async def close(self) -> None:
        """Close the connections to segment stores and to the oracle, once the controller has stopped."""
        for client in self.connected:
            client.close()
        await self.cpo.close()


class Controller(Service):
    """Order of the start: membership, election and assignment, stores, tables, queue, transactions, retention,
    watermarks, gRPC, event processors, which come online in the background. REST opens first, so that health can be
    asked from the beginning. Nothing waits for what comes after it."""

    def __init__(self, config: ControllerConfig, backends: Backends) -> None:
        super().__init__("controller")
        self.config = config
        self.backends = backends
        self.member_id = f"{config.controller.id or 'controller'}-{self._new_id()}"
        clock = backends.clock
        self.loop_lag = LoopLag(clock)
        self.tls = make_server_tls(config.tls, clock)
        host, port = host_and_port(config.controller.published or config.controller.listen)
        lease_ms = config.cluster.lease_ms
        self.membership = Membership(backends.cpo, self.member_id, Member(host, port, self.member_id), lease_ms, clock)
        self.judge = ControllerHealth(
            lambda: self.membership.lease_left_s,
            lambda: self.backends.hosts.ownerless,
            lambda: self.transactions.blocked,
            self.loop_lag,
            lambda: problems_of(self.tls),
            clock.problem,
        )
        self.health = HealthRegistry(self.judge)
        self.leader = AssignmentLeader(backends.cpo, self.member_id, config.controller.containers, lease_ms, clock)
        self.store = StreamStore(backends.tables, clock, self._new_id, self.member_id)
        self.byte_limits = ByteLimitsRecord(self.store, backends.cpo)
        self.marks = WriterMarks(self.store)
        self.known_subscribers = KnownSubscribers(self.store, backends.access)
        self.queue = TableRequestQueue(backends.tables, self.member_id, clock, self.membership.live_ids)
        self._again = SecondDeletion(self.queue, backends.access, clock)
        self.transactions = TransactionService(
            store=backends.tables,
            streams=self.store,
            segments=backends.access,
            queue=self.queue,
            clock=clock,
            listener=CommitMarks(self.marks),
            again=self._again,
            live_owners=self.membership.live_ids,
        )
        self.sets = TransactionSetService(
            transactions=self.transactions,
            store=backends.tables,
            clock=clock,
            kept_ms=config.transactions.sink_keep_ms,
        )
        self.known_sinks = KnownSinks(self.sets.record_of, clock)
        transactions = self.transactions
        self.repair = CommitRepair(
            transactions.records, transactions.index, backends.access, transactions.scheduler, self.sets
        )
        self.parts = self._make_parts()
        self.auto_scale = AutoScale(
            self.store, backends.access, self.parts.workflows.scale, clock, config.auto_scale.limits
        )
        self.retention = self._make_retention()
        self.watermark_ages = WatermarkAges(clock, watermark_runs_kept * config.watermarks.period_ms / 1000)
        self._stream_watermarks = self._make_stream_watermarks()
        self.watermarks = self._make_watermarks()
        self.events = self._make_events()
        self.audit = AuditLog(clock, config.log.audit_file)
        access = config.security.access(clock, f"controller {self.member_id}", self.audit)
        self.refused = RefusedCalls(clock, config.controller.refusals_per_peer_per_s)
        self.grpc = self._make_grpc(access)
        self.rest = self._make_rest(access)
        self._started: list[Service] = []

    def _make_parts(self) -> ApiParts:
        store, access, queue = self.store, self.backends.access, self.queue
        removal = StreamRemoval(store, access, self.transactions, self._again)
        create = CreateStream(store, access, queue, removal)
        seal = SealStream(store, access, queue, self.transactions)
        delete = DeleteStream(store, queue, removal)
        groups = ReaderGroups(store, queue, create, seal, delete)
        tables = KeyValueTables(store, access, queue, self._again)
        limits = self.byte_limits
        workflows = Workflows(
            create,
            UpdateStream(store, access, queue),
            ScaleStream(store, access, queue),
            TruncateStream(store, access, queue, self._again),
            seal,
            delete,
            DeleteScope(store, queue, seal, delete, groups, tables, limits),
            SetScopeQuota(store, queue, limits, self._new_id),
        )
        hosts, live_ids = self.backends.hosts, self.membership.live_ids
        return ApiParts(
            store,
            workflows,
            tables,
            groups,
            self.marks,
            self.known_subscribers,
            self.known_sinks,
            hosts,
            live_ids,
            self._new_id,
        )

    def window_parts(self) -> WindowParts:
        """The parts that the page at ``/`` asks for its answers."""
        transactions = self.transactions
        return WindowParts(
            self.store,
            self.backends.access,
            transactions.records,
            self.sets,
            self.parts.groups,
            lambda: transactions.blocked,
            self.judge.problems,
            self._status,
            lambda: self.backends.hosts.placement,
            self.backends.hosts.look_again,
            self.backends.hosts.controllers,
            self.backends.clock,
            self.backends.clients,
            None if self._stream_watermarks is None else self._stream_watermarks.newest,
        )

    def _status(self) -> tuple[str, dict[str, str]]:
        overall = self.health.overall()
        return overall.status, {name: child.status for name, child in overall.children.items()}

    def _make_retention(self) -> RetentionJob:
        period_ms, truncate = self.config.retention.period_ms, self.parts.workflows.truncate
        heard_of = self.known_subscribers.heard_of
        retention = StreamRetention(self.store, self.backends.access, truncate, period_ms, heard_of)
        expiry = HistoryExpiry(self.store, self.transactions.records, self.config.retention.history_ms)
        steps = (retention.apply_to, expiry.apply_to)
        return RetentionJob(self.store, steps, self.member_id, self.membership.live_ids, self.backends.clock, period_ms)

    def _make_stream_watermarks(self) -> StreamWatermarks | None:
        revisions, workflows = self.backends.revisions, self.parts.workflows
        if revisions is None:
            return None
        segments, ages = MarkSegments(revisions, self.backends.access), self.watermark_ages
        return StreamWatermarks(self.store, self.marks, segments, workflows.create, workflows.delete, ages)

    def _make_watermarks(self) -> WatermarkJob | None:
        watermarks = self._stream_watermarks
        if watermarks is None:
            return None
        return WatermarkJob(
            self.marks.streams,
            watermarks.advance,
            self.member_id,
            self.membership.live_ids,
            self.backends.clock,
            self.config.watermarks.period_ms,
        )

    def _make_events(self) -> EventProcessorGroup[RequestEvent] | None:
        clients, clock, workflows = self.backends.clients, self.backends.clock, self.parts.workflows
        if clients is None:
            return None
        instance = Instance(self.member_id, self.membership.live_ids, clock)
        streams = InternalStreams(self.store, workflows.create, lambda: self.leader.is_leader, clock)
        return request_processors(
            instance, clients, self.store, streams, self._truncate_internal, self.auto_scale.handle
        )

    async def _truncate_internal(self, stream: str, cut: SegmentOffsets) -> None:
        await self.parts.workflows.truncate.truncate(f"handled-{self._new_id()}", SYSTEM_SCOPE, stream, cut)

    def _make_grpc(self, access: AccessControl | None) -> GrpcServer:
        settings = self.config.controller
        return GrpcServer(
            settings.listen,
            self._grpc_services(),
            self.tls,
            access,
            self.audit,
            CallCounts.of(settings.calls_max, settings.calls_per_peer_max),
            self.refused,
            connections_max=settings.connections_max,
            watch=ConnectionWatch(self.backends.clock, settings.connections_per_peer_max),
        )

    def _make_rest(self, access: AccessControl | None) -> RestServer | None:
        listen, metrics_open = self.config.controller.rest, self.config.security.metrics_open
        context = None if self.tls is None else self.tls.context
        if not listen:
            return None
        settings = self.config.controller
        published = [host_and_port(settings.published)[0]] if settings.published else []
        limits = ConnectionLimits(settings.rest_connections_max, settings.rest_connections_per_peer_max)
        names = [*published, *settings.rest_hosts]
        return RestServer(
            listen,
            self.health,
            self.parts,
            self.window_parts(),
            self.watermark_ages,
            context,
            access,
            metrics_open=metrics_open,
            names=names,
            limits=limits,
            audit=self.audit,
            refused=self.refused,
        )

    def _grpc_services(self) -> list[Callable[[Any], None]]:
        api, sets_api = (
            ControllerServiceApi(self.parts, self.transactions),
            TransactionSetsApi(self.sets, self.known_sinks),
        )
        operations_api = CommitOperationsApi(self.repair, self.transactions.records)
        quotas_api = ScopeQuotasApi(self.parts.workflows.quota)
        health_api, lags_api = ClusterHealthApi(self.window_parts()), StreamLagsApi(self.window_parts())
        services: list[Callable[[Any], None]] = [lambda server: add_ControllerServiceServicer_to_server(api, server)]
        if self.config.controller.extensions:
            services.append(lambda server: add_TransactionSetsServicer_to_server(sets_api, server))
            services.append(lambda server: add_CommitOperationsServicer_to_server(operations_api, server))
            services.append(lambda server: add_ScopeQuotasServicer_to_server(quotas_api, server))
            services.append(lambda server: add_ClusterHealthServicer_to_server(health_api, server))
            services.append(lambda server: add_StreamLagsServicer_to_server(lags_api, server))
        return services

    def _new_id(self) -> str:
        return uuid.UUID(int=self.backends.random.getrandbits(128), version=4).hex

    async def on_start(self) -> None:
        for door in (self.loop_lag, self.tls, self.rest):
            if door is not None:
                await self._start(door)
        await self._check_container_count()
        for service in (*self.backends.services, self.membership, self.leader):
            await self._start(service)
        await self._stores_ready()
        await self._create_system_tables()
        for service in (self.queue, self.transactions, self.sets, self.retention):
            await self._start(service)
        if self.watermarks is not None:
            await self._start(self.watermarks)
        await self._start(self.grpc)
        await self._publish_port()
        if self.events is not None:
            await self._start(self.events)
        self.health.all_added()
        self.log.info("controller serves", grpc_port=self.grpc.port, id=self.member_id)

    async def _start(self, service: Service) -> None:
        self.health.add(service, self._details_of(service))
        self._started.append(service)
        self.own(service)
        await service.start()

    def _details_of(self, service: Service) -> Callable[[], dict[str, Any]] | None:
        if isinstance(service, EventProcessorGroup):
            return service.details
        return self._blocked_streams if service is self.transactions else None

    def _blocked_streams(self) -> dict[str, Any]:
        blocked = self.transactions.blocked
        return {"blockedStreams": dict(blocked)} if blocked else {}

    async def on_stop(self) -> None:
        for service in reversed(self._started):
            await service.stop()
        self.audit.close()

    async def _check_container_count(self) -> None:
        wanted = self.config.controller.containers
        standing = await self.backends.cpo.set_once(CONTAINER_COUNT_KEY, str(wanted))
        if standing != str(wanted):
            raise ConfigurationError(
                f"controller.containers = {wanted}: this cluster was started with {standing} containers, "
                "and their number is fixed for its life"
            )

    async def _stores_ready(self) -> None:
        waited_s = 0.0
        while self.backends.hosts.ownerless:
            if waited_s % stores_log_period_s < stores_poll_s:
                self.log.info("waiting for segment stores to own every container")
            await self.backends.clock.sleep(stores_poll_s)
            waited_s += stores_poll_s

    async def _create_system_tables(self) -> None:
        """Containers may be owned and still be recovering: this is repeated until they serve."""

        async def create() -> None:
            await self.store.create_system_tables()
            # The oracle's copy may have been lost with the oracle.
            await self.byte_limits.copy()

        await retry(
            create,
            system_tables_limits,
            self.backends.clock,
            when=lambda error: error.retryable,
            on_error=lambda error: self.log.info("system tables cannot be created yet", error=str(error)),
        )

    async def _publish_port(self) -> None:
        """A port of 0 in the settings is known only now."""
        host, port = host_and_port(self.config.controller.published or self.config.controller.listen)
        if port == 0:
            await self.membership.publish(Member(host, self.grpc.port, self.member_id))


def make_backends(config: ControllerConfig, machine: Clock, random: Random) -> Backends:
    """The real ones: the oracle in Redis or a file, and segment stores over the wire."""
    clock = OracleClock(machine)
    cpo = make_cpo(
        config.cluster.cpo,
        allow_unsafe_redis=config.cluster.allow_unsafe_redis,
        clock=machine,
        access=config.redis.access(),
    )
    tokens = config.security.tokens(clock, f"controller {config.controller.id}".strip())
    hosts = AssignmentHostStore(cpo, config.controller.containers, clock, config.tls.client(), tokens)
    client = RawClient(hosts, clock=clock)
    tables: VersionedStore = (
        InMemoryVersionedStore()
        if config.controller.store is StoreKind.MEMORY
        else TableVersionedStore(TableClient(client))
    )
    clients = WireClients(client, TableClient(client), hosts)
    revisions = WireRevisionedSegments(client, hosts)
    access = WireSegmentAccess(client)
    return Backends(cpo, hosts, tables, access, clock, random, (hosts,), clients, revisions, (client, revisions))


async def serve(config: ControllerConfig) -> None:
    """Run a controller until SIGTERM or SIGINT; raises what made it fail."""
    with lasting_imports():  # they load the clients of those servers that the settings name
        backends = make_backends(config, SystemClock(), SystemRandom())
    controller = Controller(config, backends)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    try:
        await _until_stopped(controller, stopping)
    finally:
        await controller.stop()
        await backends.close()


async def _until_stopped(controller: Controller, stopping: asyncio.Event) -> None:
    """Start the controller and wait for a signal or its own end; a signal also ends a start that still waits."""
    stop = asyncio.ensure_future(stopping.wait())
    work: asyncio.Future[Any] = asyncio.ensure_future(_run(controller))
    await asyncio.wait({stop, work}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if work.done():
        await work
        return
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _run(controller: Controller) -> None:
    await controller.start()
    notices = SystemdNotices(lambda: controller.judge.is_alive, controller.backends.clock)
    await notices.start()
    try:
        await controller.wait_stopped()
    finally:
        await notices.stop()


def run_controller(config_path: Path) -> None:
    """Run a controller until it is stopped. ``ConfigurationError`` for settings that cannot work."""
    set_up_log(LogSection())
    arm_from_environment()
    config = ControllerConfig.load(config_path)
    set_up_log(config.log)
    structlog.get_logger().info("settings", file=str(config_path), **config.model_dump(mode="json"))
    asyncio.run(serve(config))
