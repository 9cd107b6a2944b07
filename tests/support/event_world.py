"""Runs controllers on fake stores, with a segment store in memory behind a real socket for their internal streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controller_service.event_processors.internal_streams import InternalStreams
from controller_service.event_processors.own_streams import OwnStreams
from controller_service.event_processors.request_events import REQUEST_GROUP
from controller_service.event_processors.request_stream import WireClients
from controller_service.event_processors.wire_event_source import WireEventSource
from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.service import Controller
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import REQUEST_STREAM, SYSTEM_SCOPE, segment_name
from pravega_streams.connection.endpoints import Endpoint, WithoutTokens
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient
from segment_service.host.listener import WireServer
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore

refresh_time_ms = 20
REQUEST_SEGMENTS = [segment_name(SYSTEM_SCOPE, REQUEST_STREAM, number) for number in range(2)]


class OneStore(WithoutTokens):
    """An ``EndpointResolver`` to the one store there is."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def resolve(self, segment: str) -> Endpoint:
        return self._endpoint

    def forget(self, segment: str) -> None:
        pass


@dataclass
class EventWorld:
    """``parts``: what controllers of this world stand on."""

    segments: InMemorySegmentStore
    parts: ControllerParts
    clients: WireClients

    async def bytes_gone(self) -> int:
        return sum([(await self.segments.get_info(segment)).start_offset for segment in REQUEST_SEGMENTS])

    def source(self, controller: Controller, reader_id: str) -> WireEventSource:
        """A source beside that of the controller, which must be started, and which truncates for it."""
        workflows, clock = controller.parts.workflows, self.parts.clock
        streams = InternalStreams(controller.store, workflows.create, lambda: True, clock)

        async def truncate(stream: str, cut: SegmentOffsets) -> None:
            await workflows.truncate.truncate(f"t-{controller._new_id()}", SYSTEM_SCOPE, stream, cut)

        prepare: Callable[[], Awaitable[None]] = lambda: streams.ensure(REQUEST_STREAM)  # noqa: E731
        clients = self.clients
        cluster = ReaderCluster(OwnStreams(controller.store), clients.requests, clients.tables, clients.resolver, clock)
        return WireEventSource(cluster, REQUEST_STREAM, REQUEST_GROUP, reader_id, prepare, truncate, refresh_time_ms)


@asynccontextmanager
async def event_world() -> AsyncIterator[EventWorld]:
    segments = InMemorySegmentStore()
    server = WireServer(segments, InMemoryTableStore(segments), segments)
    await server.start()
    resolver = OneStore(Endpoint("127.0.0.1", server.port))
    requests = RawClient(resolver)
    clients = WireClients(requests, TableClient(requests), resolver)
    parts = ControllerParts(faulty_access=WireSegmentAccess(requests))
    yield EventWorld(segments, parts, clients)
    requests.close()
    await server.stop()
