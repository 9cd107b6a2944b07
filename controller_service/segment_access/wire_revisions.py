"""Implements ``RevisionedSegments`` over the wire protocol, as Pravega's revisioned stream client does."""

from __future__ import annotations

import random
import uuid
from typing import Final

from controller_service.segment_access.append_call import call_writer
from pravega_common.errors import PravegaError
from pravega_common.hashing import attribute_id_of
from pravega_common.invariants import check
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.segment.raw_client import RawClient

MARK_ATTRIBUTE: Final = attribute_id_of("RevisionStreamClientMark")
"""The attribute in which Pravega's clients keep the mark of a revisioned stream."""
NO_MARK: Final = -(1 << 63)


class WireRevisionedSegments:
    """Appends are set up each time: they are seconds apart, and nothing has to be remembered of a segment."""

    def __init__(self, client: RawClient, resolver: EndpointResolver) -> None:
        self._client = client
        self._resolver = resolver
        self._pool = ConnectionPool()
        # One writer of a segment for the life of the process: a store remembers every writer.
        self._run = uuid.UUID(int=random.getrandbits(128), version=4)

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        reply = await self._client.call(
            segment, lambda rid: c.ReadSegment(segment, offset, length, "", rid), c.SegmentRead, idempotent=True
        )
        check(reply.offset == offset, "a read was answered from another offset", segment=segment)
        # The length is a suggestion: a store may answer with more than was asked for.
        return bytes(reply.data[:length])

    async def append_at(self, segment: str, offset: int, event: bytes) -> bool:
        writer = uuid.uuid5(self._run, segment).bytes
        try:
            connection = await self._pool.get(await self._resolver.resolve(segment))
            token = await self._resolver.token(segment)
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
        except PravegaError:
            self._resolver.forget(segment)
            raise
        return isinstance(reply, c.DataAppended)

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
