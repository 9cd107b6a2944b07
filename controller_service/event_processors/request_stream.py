"""Composes the processing of ``_system/_requeststream`` on one instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from controller_service.event_processors.event_processor_group import EventProcessorGroup
from controller_service.event_processors.internal_streams import InternalStreams
from controller_service.event_processors.own_streams import OwnStreams
from controller_service.event_processors.request_events import (
    REQUEST_GROUP,
    EventKind,
    RequestEvent,
    RequestEvents,
)
from controller_service.event_processors.wire_event_source import Truncate, WireEventSource, reader_of
from controller_service.store.stream_store import StreamStore
from pravega_common.model.auto_scale_event import AUTO_SCALE_TYPE, AutoScaleEvent
from pravega_common.names import REQUEST_STREAM
from pravega_common.runtime.clock import Clock
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient

_log: Final = structlog.get_logger(service="event-processors")
HandleReport = Callable[[AutoScaleEvent], Awaitable[None]]
"""Acts on a traffic report; ``Postpone`` while the stream is busy."""


@dataclass(frozen=True, slots=True)
class WireClients:
    """The clients by which a controller reads streams of its own cluster."""

    requests: RawClient
    tables: TableClient
    resolver: EndpointResolver


@dataclass(frozen=True, slots=True)
class Instance:
    """The instance that runs the processors, as its group knows it."""

    member_id: str
    live_ids: Callable[[], Awaitable[set[str]]]
    clock: Clock

    async def live_readers(self) -> set[str]:
        """The names of the readers whose instances have a lease."""
        return {reader_of(member_id) for member_id in await self.live_ids()}


def request_processors(
    instance: Instance,
    clients: WireClients,
    store: StreamStore,
    streams: InternalStreams,
    truncate: Truncate,
    handle_report: HandleReport,
) -> EventProcessorGroup[RequestEvent]:
    """The reader of the request stream with its handlers, not started."""
    cluster = ReaderCluster(OwnStreams(store), clients.requests, clients.tables, clients.resolver, instance.clock)
    source = WireEventSource(
        cluster,
        REQUEST_STREAM,
        REQUEST_GROUP,
        reader_of(instance.member_id),
        lambda: streams.ensure(REQUEST_STREAM),
        truncate,
    )
    kinds = {AUTO_SCALE_TYPE: EventKind(AutoScaleEvent.from_bytes, _noted(handle_report))}
    return EventProcessorGroup(REQUEST_GROUP, source, RequestEvents(kinds), instance.live_readers, instance.clock)


def _noted(handle: HandleReport) -> HandleReport:
    """The handler, with a line of the log for each report: a store sends one for a segment every few minutes."""

    async def noted(event: AutoScaleEvent) -> None:
        _log.info("traffic report", stream=event.routing_key, segment=event.segment_id, direction=event.direction.name)
        await handle(event)

    return noted
