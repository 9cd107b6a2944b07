"""Seals a stream (docs/controller-api.md 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone, Request, RequestQueue, run_and_wait
from controller_service.segment_access.segment_access import SegmentAccess, calls_at_once_max
from controller_service.store.records import STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.states import no_way_back
from pravega_common.errors import SegmentNotFound
from pravega_common.names import scoped_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

KIND: Final = "seal_stream"

MARKED = register("controller.seal_marked")
SEGMENTS_SEALED = register("controller.seal_segments_sealed")


class TransactionEnder(Protocol):
    """The part of the transaction service that sealing and deletion need."""

    async def end_all(self, scope: str, stream: str, stream_id: str) -> bool:
        """Abort the open transactions of a stream that is being sealed or deleted; true once no transaction is left,
        also none that is being committed. Those of a later stream of the name are left alone."""
        ...


class SealStream:
    def __init__(
        self, store: StreamStore, access: SegmentAccess, queue: RequestQueue, transactions: TransactionEnder
    ) -> None:
        self._store = store
        self._access = access
        self._queue = queue
        self._transactions = transactions
        self._log = structlog.get_logger(service="seal-stream")
        queue.register(KIND, self.handle)

    async def seal(self, request_id: str, scope: str, stream: str) -> None:
        """Returns once the stream is sealed; at once if it is already. ``StreamNotFound``."""
        context = await self._store.open(scope, stream)
        if await context.state() is StreamState.SEALED:
            return
        payload = {"scope": scope, "stream": stream, "stream_id": context.stream_id}
        await run_and_wait(self._queue, Request(f"{KIND}-{request_id}", KIND, scoped_name(scope, stream), payload))

    async def handle(self, request: Request) -> None:
        await self.carry_out(request.payload["scope"], request.payload["stream"], request.payload["stream_id"])

    async def carry_out(self, scope: str, stream: str, stream_id: str) -> None:
        """All steps, for this and other workflows' handlers; ``Postpone`` while something must end first."""
        try:
            context = await self._store.update(scope, stream, lambda fresh: _mark(fresh, stream_id))
        except OperationNotAllowed as error:
            raise Postpone(str(error)) from error
        if context.stream_id != stream_id or await context.state() is StreamState.SEALED:
            return
        failpoint(MARKED)
        with no_way_back(f"sealing of stream {context.name}"):
            await self._seal_marked(scope, stream, stream_id)

    async def _seal_marked(self, scope: str, stream: str, stream_id: str) -> None:
        """From here on nobody else may use the stream, so a refusal must not end the request."""
        if not await self._transactions.end_all(scope, stream, stream_id):
            raise Postpone(f"stream {scope}/{stream} has transactions")
        # Read again: a commit that was let finish may have moved the epoch.
        context = await self._store.open(scope, stream)
        if context.stream_id != stream_id:
            return
        await self._seal_segments((await context.current_epoch()).names(scope, stream))
        failpoint(SEGMENTS_SEALED)
        await self._store.update(scope, stream, lambda fresh: _sealed(fresh, stream_id))

    async def _seal_segments(self, segments: Sequence[str]) -> None:
        """Seal all that exist: nobody can write to one that is lost, and the stream must not stay half sealed."""
        try:
            await self._access.seal_segments(segments)
            return
        except SegmentNotFound as error:
            self._log.error("a segment of a stream is lost", segment=error.segment)

        async def seal(segment: str) -> None:
            try:
                await self._access.seal_segments([segment])
            except SegmentNotFound:
                return

        await each_ended(seal, segments, at_once=calls_at_once_max)


async def _mark(context: StreamContext, stream_id: str) -> None:
    if context.stream_id == stream_id and await context.state() is not StreamState.SEALED:
        await context.move_state(StreamState.SEALING)


async def _sealed(context: StreamContext, stream_id: str) -> None:
    if context.stream_id == stream_id and await context.state() is StreamState.SEALING:
        context.stage(STATE, StateRecord(StreamState.SEALED))
