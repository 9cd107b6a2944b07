"""Appends single events to an internal stream and waits for each: for the few that are written behind the others."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from typing import Final, TypeVar

from pravega_common.errors import SegmentNotFound, SegmentSealed, StreamSealed, UnknownOutcome
from pravega_common.hashing import position_of_key
from pravega_common.segment_router import SegmentRouter
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, MakeCommand
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.connection.replies import error_of
from pravega_streams.readers.cluster import StreamMetadata

append_time_max_s: Final = 30.0
_HEADER = struct.Struct(">ii")

R = TypeVar("R", bound=c.Command)


class InternalStreamWriter:
    """One event at a time, in order. An event whose answer is lost may be written again by its caller.

    Errors: ``StreamSealed``, ``StreamNotFound``, ``Unavailable``, ``UnknownOutcome``, ``SegmentSealed`` and
    ``SegmentNotFound`` in the middle of a scale, after which the segments are looked up again.
    """

    def __init__(self, metadata: StreamMetadata, resolver: EndpointResolver, scope: str, stream: str) -> None:
        self._metadata = metadata
        self._resolver = resolver
        self._stream = scope, stream
        self._pool = ConnectionPool()
        self._router: SegmentRouter | None = None
        self._in_turn = asyncio.Lock()
        # One writer for the life of the process: a store remembers every writer of a segment.
        self._writer_id = uuid.UUID(int=random.getrandbits(128), version=4).bytes

    async def write(self, routing_key: str, event: bytes) -> None:
        """Append an event; it is durable on return."""
        async with self._in_turn:
            segment = (await self._segments()).segment_of(position_of_key(routing_key)).name
            try:
                await self._append(segment, event)
            except (SegmentSealed, SegmentNotFound):
                self._router = None
                raise
            except BaseException:
                self._resolver.forget(segment)
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

    async def _append(self, segment: str, event: bytes) -> None:
        """Set up and append, so that nothing need be known about what an earlier connection did."""
        setup = await self._call(segment, lambda rid: c.SetupAppend(rid, self._writer_id, segment), c.AppendSetup)
        number = max(0, setup.last_event_number) + 1
        data = _HEADER.pack(0, len(event)) + event
        await self._call(
            segment, lambda rid: c.AppendBlockEnd(self._writer_id, len(data), data, 1, number, rid), c.DataAppended
        )

    async def _call(self, segment: str, make: MakeCommand, expect: type[R]) -> R:
        connection = await self._pool.get(await self._resolver.resolve(segment))
        try:
            async with asyncio.timeout(append_time_max_s):
                reply = await connection.call(make)
        except TimeoutError as error:
            connection.close(f"no answer to an append within {append_time_max_s:.0f} s")
            raise UnknownOutcome(f"{segment}: no answer within {append_time_max_s:.0f} s") from error
        failure = error_of(reply, segment)
        if failure is not None:
            raise failure
        if not isinstance(reply, expect):
            connection.close(f"{type(reply).__name__} in answer to an append")
            raise UnknownOutcome(f"{segment}: the store answered an append with {type(reply).__name__}")
        return reply
