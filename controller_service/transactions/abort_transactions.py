"""Cleans up transactions that are marked as aborting (docs/controller-api.md 4.6)."""

from __future__ import annotations

import uuid

import structlog

from controller_service.queue.request_queue import Request
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.transactions.records import transaction_segments
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common.errors import StreamNotFound
from pravega_common.model.transactions import TransactionState
from pravega_common.names import split_scoped_name
from pravega_common.runtime.failpoints import failpoint, register

SEGMENTS_DELETED = register("transaction_abort.segments_deleted")
COMPLETED = register("transaction_abort.completed_recorded")


class AbortWorkflow:
    """Deletes the segments, records the end, forgets the transaction. Every step may run again."""

    def __init__(self, transactions: TransactionStore, segments: SegmentAccess) -> None:
        self._transactions = transactions
        self._segments = segments
        self._log = structlog.get_logger(service="transactions")

    async def handle(self, request: Request) -> None:
        scope, stream = split_scoped_name(request.payload["stream"])
        try:
            await self.run(scope, stream, uuid.UUID(hex=request.payload["transaction"]))
        except StreamNotFound:
            # Its transactions went with it: a stream is deleted only when none is left.
            self._log.info("abort dropped, the stream is gone", stream=f"{scope}/{stream}")

    async def run(self, scope: str, stream: str, identifier: uuid.UUID) -> None:
        found = await self._transactions.get(scope, stream, identifier)
        if found is None or found.record.state is not TransactionState.ABORTING:
            return
        await self._segments.delete_segments(transaction_segments(scope, stream, identifier, found.record.segments))
        failpoint(SEGMENTS_DELETED)
        await self._transactions.complete(scope, stream, [identifier], TransactionState.ABORTED, lost=found.record.lost)
        failpoint(COMPLETED)
        await self._transactions.remove(scope, stream, [identifier])
