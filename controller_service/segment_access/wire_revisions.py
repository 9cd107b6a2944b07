"""Implements ``RevisionedSegments`` over the wire protocol, as Pravega's revisioned stream client does."""

from __future__ import annotations

import asyncio
import random
import uuid
import zlib
from typing import Final
from weakref import WeakValueDictionary

from controller_service.segment_access.append_call import call_writer
from pravega_common.errors import PravegaError
from pravega_common.hashing import attribute_id_of
from pravega_common.invariants import check
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.endpoints import Endpoint, EndpointResolver
from pravega_streams.segment.raw_client import RawClient

MARK_ATTRIBUTE: Final = attribute_id_of("RevisionStreamClientMark")
"""The attribute in which Pravega's clients keep the mark of a revisioned stream."""
NO_MARK: Final = -(1 << 63)
writers_max: Final = 64
"""Writers of a connection. A store keeps each until the connection ends, and closes one that sets up too many."""


class WireRevisionedSegments:
    """Appends are set up each time: they are seconds apart, and nothing has to be remembered of a segment."""

    def __init__(self, client: RawClient, resolver: EndpointResolver) -> None:
        self._client = client
        self._resolver = resolver
        self._pool = ConnectionPool()
        # One writer of a segment for the life of the process, as a store remembers every one, but shared by segments:
        # an append is of the segment that its writer was set up for last, so a writer is used by one at a time.
        run = uuid.UUID(int=random.getrandbits(128), version=4)
        self._writers = [uuid.uuid5(run, str(number)).bytes for number in range(writers_max)]
        self._in_use: WeakValueDictionary[tuple[Endpoint, bytes], asyncio.Lock] = WeakValueDictionary()

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        reply = await self._client.call(
            segment, lambda rid: c.ReadSegment(segment, offset, length, "", rid), c.SegmentRead, idempotent=True
        )
        check(reply.offset == offset, "a read was answered from another offset", segment=segment)
        # The length is a suggestion: a store may answer with more than was asked for.
        return bytes(reply.data[:length])

    async def append_at(self, segment: str, offset: int, event: bytes) -> bool:
        writer = self._writers[zlib.crc32(segment.encode()) % writers_max]
        try:
            endpoint = await self._resolver.resolve(segment)
            token = await self._resolver.token(segment)
            async with self._in_use.setdefault((endpoint, writer), asyncio.Lock()):
                connection = await self._pool.get(endpoint)
                return await _append(connection, segment, token, writer, offset, event)
        except PravegaError:
            self._resolver.forget(segment)
            raise

    async def mark(self, segment: str) -> int | None:
        reply = await self._client.call(
            segment,
            lambda rid: c.GetSegmentAttribute(rid, segment, MARK_ATTRIBUTE),
            c.SegmentAttribute,
            idempotent=True,
        )
        return None if reply.value == NO_MARK else reply.value

    async def move_mark(self, segment: str, expected: int | None, revision: int) -> bool:
        # Made again after a lost answer it may find its own mark and say False: the mark is right then, too.
        reply = await self._client.call(
            segment,
            lambda rid: c.UpdateSegmentAttribute(
                rid, segment, MARK_ATTRIBUTE, revision, NO_MARK if expected is None else expected
            ),
            c.SegmentAttributeUpdated,
            idempotent=True,
        )
        return reply.success

    def close(self) -> None:
        self._pool.close()


async def _append(
    connection: WireConnection, segment: str, token: str, writer: bytes, offset: int, event: bytes
) -> bool:
    setup = await call_writer(
        connection, segment, lambda rid: c.SetupAppend(rid, writer, segment, token), c.AppendSetup
    )
    number = max(setup.last_event_number, 0) + 1
    reply: c.Command = await call_writer(
        connection,
        segment,
        lambda rid: c.ConditionalAppend(writer, number, offset, event, rid),
        c.DataAppended,
        c.ConditionalCheckFailed,
    )
    return isinstance(reply, c.DataAppended)
