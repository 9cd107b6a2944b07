"""Serves the requests of one connection that are neither appends nor reads of segments: a task for each."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import structlog

from pravega_common.errors import InvalidArgument
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    ILLEGAL_ARGUMENT,
    Command,
    CreateTransientSegment,
    ErrorMessage,
    RequestBatch,
    SegmentsMerged,
)
from segment_service.host.connection_load import ConnectionLoad
from segment_service.host.quota_bytes import TABLE_READS, Owed, owed_for, paid, pay_in_turn
from segment_service.host.read_batches import begins_with_read
from segment_service.host.refusals import refused_in
from segment_service.host.reply_queue import ReplyQueue
from segment_service.host.server_parts import ServerParts
from segment_service.host.transient_segments import TransientSegments

_log: Final = structlog.get_logger(service="wire-server")


class RequestingConnection(Protocol):
    """The connection, as its requests see it."""

    peer_name: str

    @property
    def is_lost(self) -> bool: ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None: ...

    def cancelled_when_lost(self) -> AbstractContextManager[None]:
        """Cancel the task that runs in the context if the connection is lost meanwhile."""
        ...

    def in_flight_changed(self, bytes_delta: int, appends_delta: int) -> None: ...

    def refused(self, requests: int = 1) -> None: ...


class ConnectionRequests:
    """The requests of one connection; their replies leave in any order, as they are there."""

    def __init__(
        self,
        parts: ServerParts,
        load: ConnectionLoad,
        replies: ReplyQueue,
        transient: TransientSegments,
        connection: RequestingConnection,
    ) -> None:
        self._requests = parts.requests
        self._clock = parts.clock
        self._times = parts.times
        self._tokens = parts.tokens
        self._quotas = parts.quotas.outward
        self._load = load
        self._replies = replies
        self._transient = transient
        self._connection = connection

    def serves(self, command: Command) -> bool:
        return self._requests.serves(command)

    def start(self, command: Command, payload_bytes: int) -> None:
        """Serve a request whose frame had this many bytes."""
        self._load.change_unanswered(payload_bytes)
        self._connection.in_flight_changed(payload_bytes, 0)
        self._connection.spawn(self._serve(command, payload_bytes), type(command).__name__)

    def start_transient(self, command: CreateTransientSegment) -> None:
        self._transient.require_room()
        try:
            segment = self._requests.transient_name(command)
        except InvalidArgument as error:
            self._replies.send(codec.encode_parts(ErrorMessage(command.request_id, "", str(error), ILLEGAL_ARGUMENT)))
            self._connection.refused()
            return
        self._transient.add(segment)
        self._connection.spawn(self._serve_transient(command, segment), "CreateTransientSegment")

    def reply(self, request: Any, reply: Command) -> None:
        """Send what a request is answered with."""
        if requests := refused_in(reply):
            # Not what a controller hands on: all its callers would wait for those who ask for what cannot be.
            if not self._tokens.is_internal(getattr(request, "token", "")):
                self._connection.refused(requests)
        elif isinstance(reply, SegmentsMerged):
            self._transient.merged(reply.source)
        try:
            parts = codec.encode_parts(reply)
        except InvalidArgument as error:
            # Every request is bounded so that this cannot be; if it is, the peer gets an answer all the same.
            _log.error("reply cannot be sent", peer=self._connection.peer_name, exc_info=error)
            parts = codec.encode_parts(ErrorMessage(request.request_id, "", str(error), ILLEGAL_ARGUMENT))
        self._replies.send(parts)

    async def _serve(self, command: Command, payload_bytes: int) -> None:
        try:
            answer = await self._first_answer(command, payload_bytes)
            owed = owed_for(self._quotas, command, answer) if self._quotas else {}
            if not self._connection.is_lost and not paid(owed):
                # Not kept while it waits for its scope's turn: it is made again.
                del answer
                await self._pay_in_turn(owed)
                answer = await self._requests.answer(command)
            if _has_large_answer(command) and not self._replies.has_room:
                # As with reads of segments: answers are not kept for a slow peer, they are made again.
                del answer
                await self._reply_when_there_is_room(command)
            else:
                self.reply(command, answer)
        finally:
            self._load.change_unanswered(-payload_bytes)

    async def _first_answer(self, command: Command, payload_bytes: int) -> Command:
        """The answer of the store; with it the request ends to be on its way there."""
        began_s = self._clock.monotonic_s()
        try:
            answer = await self._requests.answer(command)
        finally:
            self._connection.in_flight_changed(-payload_bytes, 0)
        self._times.note_request(command, self._clock.monotonic_s() - began_s)
        return answer

    async def _pay_in_turn(self, owed: Owed) -> None:
        """Wait for the turn of each scope; cancelled when the connection is lost, as nothing is under way meanwhile."""
        with self._connection.cancelled_when_lost():
            await pay_in_turn(owed)

    async def _reply_when_there_is_room(self, command: Command) -> None:
        """Make the answer again; none if the connection is lost by then."""
        async with self._replies.room():
            if not self._connection.is_lost:
                self.reply(command, await self._requests.answer(command))

    async def _serve_transient(self, command: CreateTransientSegment, segment: str) -> None:
        began_s = self._clock.monotonic_s()
        self.reply(command, await self._requests.create_transient(command, segment))
        self._times.note_request(command, self._clock.monotonic_s() - began_s)


def _has_large_answer(command: Command) -> bool:
    if isinstance(command, RequestBatch):
        return begins_with_read(command.requests)
    return isinstance(command, TABLE_READS)
