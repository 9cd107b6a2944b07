"""Serves the reads of segments of one connection: a task for each, and many that wait at the tail of a segment."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from pravega_common.wire.commands import THROTTLED, Command, ErrorMessage, ReadSegment
from pravega_common.wire.errors import WireProtocolError
from segment_service.contracts.segment_store import ReadResult
from segment_service.host.connection_requests import ConnectionRequests
from segment_service.host.quota_bytes import paid, pay_in_turn
from segment_service.host.read_batches import reply_parts
from segment_service.host.reply_queue import ReplyQueue
from segment_service.host.server_parts import ServerParts
from segment_service.quotas.byte_bucket import ByteBucket

reads_in_flight_max: Final = 4_096
"""Reads of one connection that may wait; one more closes it, since not reading would let the others starve."""
quota_reads_max: Final = 4_096
"""Reads that may wait for the quota of one scope; one more is refused, so that those of others find room."""


class ReadingConnection(Protocol):
    """The connection, as its reads see it."""

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; an error that nobody foresaw costs the peer its connection."""
        ...


class ConnectionReads:
    """The reads of one connection that are not answered yet."""

    def __init__(
        self, parts: ServerParts, replies: ReplyQueue, requests: ConnectionRequests, connection: ReadingConnection
    ) -> None:
        self._store_requests = parts.requests
        self._budgets = parts.budgets
        self._clock = parts.clock
        self._times = parts.times
        self._tokens = parts.tokens
        self._quotas = parts.quotas.outward
        self._spawn = parts.spawn
        self._replies = replies
        self._requests = requests
        self._connection = connection
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, request: ReadSegment) -> None:
        if len(self._tasks) >= reads_in_flight_max:
            raise WireProtocolError("ReadSegment", f"more than {reads_in_flight_max} reads are waiting")
        budgets = self._budgets
        if budgets.reads >= budgets.reads_max:
            reason = f"{budgets.reads_max} reads are waiting at this store, its limit: try again later"
            self._send(request, self._refusal(request, reason))
            return
        budgets.reads += 1
        task = self._spawn(self._connection.guarded(self._serve(request)), "ReadSegment")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Give all of them up."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._budgets.reads -= 1

    async def _serve(self, request: ReadSegment) -> None:
        began_s = self._clock.monotonic_s()
        result = await self._store_requests.read(request)
        if isinstance(result, ReadResult) and not result.has_waited:
            self._times.reads.note(self._clock.monotonic_s() - began_s)
        if self._quotas and isinstance(result, ReadResult):
            bucket, length = self._quotas.of(request.segment), result.length
            if bucket is not None and self._tokens.counts_for_quota(request) and not paid({bucket: length}):
                # Bytes are not kept while they wait for their scope's turn, either.
                del result
                result = await self._read_in_turn(request, bucket, length)
        if self._replies.has_room:
            self._send(request, result)
            return
        # Bytes are not kept for a slow peer: they are read again, for one read at a time, when there is room.
        del result
        async with self._replies.room():
            self._send(request, await self._store_requests.read(request))

    async def _read_in_turn(self, request: ReadSegment, bucket: ByteBucket, length: int) -> ReadResult | Command:
        if bucket.waiting >= quota_reads_max:
            scope = request.segment.partition("/")[0]
            reason = f"{bucket.waiting} reads wait for the quota of scope {scope}, their limit: try again later"
            return self._refusal(request, reason)
        await pay_in_turn({bucket: length})
        result = await self._store_requests.read(request)
        bucket.take((result.length if isinstance(result, ReadResult) else 0) - length)
        return result

    def _refusal(self, request: ReadSegment, reason: str) -> ErrorMessage:
        self._budgets.refused_reads += 1
        return ErrorMessage(request.request_id, request.segment, reason, THROTTLED)

    def _send(self, request: ReadSegment, result: ReadResult | Command) -> None:
        if not isinstance(result, ReadResult):
            self._requests.reply(request, result)
            return
        self._times.note_sent(request.segment, result.length)
        self._replies.send(reply_parts(request, result))
