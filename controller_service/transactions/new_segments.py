"""Creates the segments of a transaction that was just recorded, and takes them away again if it ended meanwhile.

Between the record and the segments the stream may be sealed, and even deleted: that aborts the transaction and deletes
segments that are not there yet. Whoever makes them afterwards is the only one who knows of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from controller_service.errors import IllegalState
from controller_service.segment_access.late_segments import insist
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.records import StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.records import transaction_segments
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common.errors import PravegaError, StreamNotFound
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.clock import Clock


class NewSegments:
    def __init__(self, streams: StreamStore, records: TransactionStore, segments: SegmentAccess, clock: Clock) -> None:
        self._streams = streams
        self._records = records
        self._segments = segments
        self._clock = clock

    async def create(
        self, context: StreamContext, identifier: uuid.UUID, numbers: Sequence[int], lease_ms: int
    ) -> StreamContext:
        """The stream as it was once all segments were there. One that is being sealed may have missed the transaction.

        ``StreamNotFound`` or ``IllegalState`` if the transaction ended; then none of its segments is left.
        """
        names = transaction_segments(context.scope, context.stream, identifier, list(numbers))
        rollover = (await context.configuration()).configuration.rollover_size_bytes
        started_s = self._clock.monotonic_s()
        failure: PravegaError | None = None
        try:
            await self._segments.create_segments(names, rollover_size_bytes=rollover)
        except PravegaError as error:
            failure = error
        is_late = self._clock.monotonic_s() - started_s >= lease_ms / 1000

        async def settle() -> StreamContext:
            try:
                return await self._unless_ended(context, identifier, is_late)
            except (StreamNotFound, IllegalState):
                self._streams.forget(context.scope, context.stream)
                await self._segments.delete_segments(names)
                raise

        fresh = await insist(settle, self._clock)
        if failure is not None:
            raise failure
        return fresh

    async def _unless_ended(self, context: StreamContext, identifier: uuid.UUID, is_late: bool) -> StreamContext:
        """The stream of now. An open one that is looked at within the lease still has the transaction."""
        fresh = await self._streams.open(context.scope, context.stream)
        if fresh.stream_id != context.stream_id or (await fresh.state_record()).is_deleting:
            # The deletion may have looked for transactions before this one was recorded.
            raise StreamNotFound.of(context.scope, context.stream)
        if is_late or await fresh.state() in (StreamState.SEALING, StreamState.SEALED):
            found = await self._records.get(context.scope, context.stream, identifier)
            if found is None or found.record.state is not TransactionState.OPEN:
                raise IllegalState(f"Stream: {context.stream}: transaction {identifier} ended before it had segments")
        return fresh
