"""Appends events to an internal stream, many at a time, each of which its caller waits for."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import uuid
from dataclasses import dataclass, field

from controller_service.segment_access.append_call import call_writer
from pravega_common.errors import (
    InvalidArgument,
    PravegaError,
    SegmentNotFound,
    SegmentSealed,
    StreamSealed,
)
from pravega_common.hashing import position_of_key
from pravega_common.segment_router import SegmentRouter
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.event.event_writer import event_bytes_max
from pravega_streams.readers.cluster import StreamMetadata

_HEADER = struct.Struct(">ii")


@dataclass(slots=True)
class _Lane:
    """The appends of one segment: on one connection after the other, under numbers that only grow."""

    segment: str
    writer_id: bytes
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: WireConnection | None = None
    """Set while the writer is set up on it."""


class InternalStreamWriter:
    """Writes events that begin one after the other in that order, if they are of one routing key and none fails.

    An event whose answer is lost may be written again by its caller. Errors: ``StreamSealed``, ``StreamNotFound``,
    ``InvalidArgument`` for an event above 8 MiB, ``Unavailable``, ``UnknownOutcome``, and in the middle of a scale
    ``SegmentSealed`` and ``SegmentNotFound``, after which the segments are looked up again.
    """

    def __init__(self, metadata: StreamMetadata, resolver: EndpointResolver, scope: str, stream: str) -> None:
        self._metadata = metadata
        self._resolver = resolver
        self._stream = scope, stream
        self._pool = ConnectionPool()
        self._router: SegmentRouter | None = None
        self._lanes: dict[str, _Lane] = {}

    async def write(self, routing_key: str, event: bytes) -> None:
        """Append an event; it is durable on return."""
        if len(event) > event_bytes_max:
            raise InvalidArgument(f"an event of {len(event)} bytes is larger than {event_bytes_max} bytes")
        segment = (await self._segments()).segment_of(position_of_key(routing_key)).name
        # One writer of a segment for the life of the process: a store remembers every writer.
        lane = self._lanes.setdefault(segment, _Lane(segment, uuid.UUID(int=random.getrandbits(128), version=4).bytes))
        try:
            await self._append(lane, _HEADER.pack(0, len(event)) + event)
        except PravegaError as error:
            lane.connection = None
            self._resolver.forget(segment)
            if isinstance(error, (SegmentSealed, SegmentNotFound)):
                self._router = None
                self._lanes.pop(segment, None)
            raise

    def close(self) -> None:
        self._pool.close()

    async def _segments(self) -> SegmentRouter:
        if self._router is None:
            segments = await self._metadata.current_segments(*self._stream)
            if not segments:
                raise StreamSealed(f"stream {'/'.join(self._stream)} is sealed and takes no further events")
            self._router = SegmentRouter(segments)
        return self._router

    async def _append(self, lane: _Lane, data: bytes) -> None:
        connection = await self._connection(lane)
        await call_writer(
            connection,
            lane.segment,
            lambda rid: c.AppendBlockEnd(lane.writer_id, len(data), data, 1, next(lane.numbers), rid),
            c.DataAppended,
        )

    async def _connection(self, lane: _Lane) -> WireConnection:
        """The connection on which the lane's writer is set up."""
        async with lane.opening:
            if lane.connection is None or not lane.connection.is_open:
                connection = await self._pool.get(await self._resolver.resolve(lane.segment))
                token = await self._resolver.token(lane.segment)
                await call_writer(
                    connection,
                    lane.segment,
                    lambda rid: c.SetupAppend(rid, lane.writer_id, lane.segment, token),
                    c.AppendSetup,
                )
                lane.connection = connection
            return lane.connection
