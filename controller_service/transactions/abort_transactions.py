"""Cleans up transactions that are marked as aborting (docs/controller-api.md 4.6)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

import structlog

from controller_service.queue.request_queue import Request
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.transactions.counts import ABORTED
from controller_service.transactions.records import transaction_segments
from controller_service.transactions.scheduling import AbortsToDo, WorkScheduler
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common.errors import FailedError, RejectedError, StreamNotFound
from pravega_common.model.transactions import TransactionState
from pravega_common.names import split_scoped_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended

SEGMENTS_DELETED = register("transaction_abort.segments_deleted")
COMPLETED = register("transaction_abort.completed_recorded")


aborts_concurrent_max: Final = 16
"""Transactions of one stream that are cleaned up at the same time."""


class AbortFailed(FailedError):
    """Aborts of a stream cannot end now; they are tried again."""


class AbortWorkflow:
    """Deletes the segments, records the end, forgets the transaction. Every step may run again."""

    def __init__(self, transactions: TransactionStore, segments: SegmentAccess, scheduler: WorkScheduler) -> None:
        self._transactions = transactions
        self._scheduler = scheduler
        self._segments = segments
        self._log = structlog.get_logger(service="transactions")

    async def handle(self, request: Request) -> None:
        """Clean up the transactions that are scheduled for the stream, also those that come while this runs."""
        scope, stream = split_scoped_name(request.payload["stream"])
        try:
            while (to_do := self._scheduler.take_aborts(request)) is not None:
                try:
                    await self._run_all(scope, stream, to_do)
                except StreamNotFound:
                    # Its transactions went with it: a stream is deleted only when none is left. What was scheduled
                    # meanwhile is of the next stream of the name.
                    self._log.info("abort dropped, the stream is gone", stream=f"{scope}/{stream}")
                except BaseException:
                    self._scheduler.put_back(request, to_do)
                    raise
                if request.payload.get("instance") != self._scheduler.instance:
                    return
        except RejectedError as error:
            # The queue drops what is rejected, but an abort that was promised is never dropped.
            raise AbortFailed(f"{scope}/{stream}: {error}") from error

    async def _run_all(self, scope: str, stream: str, to_do: AbortsToDo) -> None:
        """Those that fail stay in ``to_do``; they do not keep the others back. Raises the first error."""
        if to_do.all:
            active = await self._transactions.active(scope, stream)
            to_do.ids |= {one for one, found in active if found.record.state is TransactionState.ABORTING}
            to_do.all = False
        slots = asyncio.Semaphore(aborts_concurrent_max)

        async def run(identifier: uuid.UUID) -> None:
            async with slots:
                await self.run(scope, stream, identifier)
            to_do.ids.discard(identifier)

        await all_ended(map(run, sorted(to_do.ids)))

    async def run(self, scope: str, stream: str, identifier: uuid.UUID) -> None:
        found = await self._transactions.get(scope, stream, identifier)
        if found is None or found.record.state is not TransactionState.ABORTING:
            return
        await self._segments.delete_segments(transaction_segments(scope, stream, identifier, found.record.segments))
        failpoint(SEGMENTS_DELETED)
        await self._transactions.complete(scope, stream, [identifier], TransactionState.ABORTED, lost=found.record.lost)
        failpoint(COMPLETED)
        await self._transactions.remove(scope, stream, [identifier])
        ABORTED.inc()
