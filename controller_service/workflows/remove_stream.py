"""Removes a stream with everything that belongs to it: the steps of its deletion (docs/controller-api.md 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller_service.queue.request_queue import Postpone
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import last_number
from controller_service.store.records import (
    CURRENT_EPOCH,
    DELETION,
    STATE,
    TRANSITION,
    TRUNCATION,
    SegmentRecord,
    StateRecord,
    StreamState,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.seal_stream import TransactionEnder
from controller_service.workflows.states import no_way_back
from pravega_common.errors import StreamNotFound, StreamNotSealed
from pravega_common.names import MARK_PREFIX, mark_stream, segment_epoch
from pravega_common.runtime.failpoints import failpoint, register

segments_per_delete_max: Final = 1_000

MARKED = register("controller.delete_marked")
SEGMENTS_DELETED = register("controller.delete_segments_deleted")
NUMBER_RECORDED = register("controller.delete_number_recorded")


class StreamRemoval:
    """For the handlers of requests, which repeat it."""

    def __init__(
        self, store: StreamStore, access: SegmentAccess, transactions: TransactionEnder, again: SecondDeletion
    ) -> None:
        self._store = store
        self._access = access
        self._transactions = transactions
        self._again = again

    async def carry_out(self, scope: str, stream: str, stream_id: str) -> None:
        """All steps. The stream must be sealed or never completed, else ``StreamNotSealed``: it may have been
        completed, and used, since somebody asked for its deletion. ``Postpone`` while a transaction must end first."""
        entry = await self._store.entry(scope, stream)
        if entry is None or entry.stream_id != stream_id:
            return
        context = await self._marked(scope, stream, stream_id)
        with no_way_back(f"deletion of stream {scope}/{stream}"):
            if not stream.startswith(MARK_PREFIX):
                await self._end_transactions(context, stream_id)
                await self._delete_mark_stream(scope, mark_stream(stream))
            await self._delete(context, scope, stream, stream_id)

    async def _end_transactions(self, context: StreamContext | None, stream_id: str) -> None:
        """End the transactions that were begun too late for the sealing of the stream.

        One that is begun after this finds the mark once its segments are there, and has them taken away.
        """
        if context is not None and not await self._transactions.end_all(context.scope, context.stream, stream_id):
            raise Postpone(f"stream {context.name} has transactions")

    async def _delete_mark_stream(self, scope: str, name: str) -> None:
        entry = await self._store.entry(scope, name)
        if entry is not None:
            await self._delete(await self._marked(scope, name, entry.stream_id), scope, name, entry.stream_id)

    async def _marked(self, scope: str, stream: str, stream_id: str) -> StreamContext | None:
        """The stream, from now on marked as being deleted; None if it has no records (any more).

        Not by its name: for that the store may know an earlier stream, whose missing records say nothing of this one.
        """
        try:
            return await self._store.update_of(scope, stream, stream_id, _mark, TRANSITION, TRUNCATION)
        except StreamNotFound:
            # The metadata went in an earlier attempt, after the segments, or was never written, like them.
            self._store.forget(scope, stream)
            return None

    async def _delete(self, context: StreamContext | None, scope: str, stream: str, stream_id: str) -> None:
        try:
            if context is not None:
                await self._delete_segments(context)
        except StreamNotFound:
            # Another run of the deletion took the metadata away meanwhile, after the segments.
            self._store.forget(scope, stream)
        failpoint(NUMBER_RECORDED)
        await self._store.remove_stream(scope, stream, stream_id)

    async def _delete_segments(self, context: StreamContext) -> None:
        if await context.read(STATE) is None or await context.read(CURRENT_EPOCH) is None:
            return
        failpoint(MARKED)
        current = await context.current_epoch()
        truncation = await context.truncation()
        head = truncation.since if truncation.updating else truncation.cut
        first = min((segment_epoch(identifier) for identifier in head), default=0)
        first = max(first, (await context.history()).oldest_epoch)
        seen: frozenset[int] = frozenset()
        async for epoch in context.walk_epochs(range(first, current.epoch + 1)):
            await self._delete_all(context, [item for item in epoch.segments if item.segment_id not in seen])
            seen = frozenset(epoch.segment_ids)
        # A scale that was planned may have created its segments already.
        transition = await context.transition()
        await self._delete_all(context, transition.new_segments)
        failpoint(SEGMENTS_DELETED)
        last = max([last_number(current), *(segment.number for segment in transition.new_segments)])
        await self._store.record_deleted(context.scope, context.stream, last + 1)

    async def _delete_all(self, context: StreamContext, segments: Sequence[SegmentRecord]) -> None:
        names = [segment.name(context.scope, context.stream) for segment in segments]
        await self._again.promise_young(context.scope, context.stream, segments)
        for start in range(0, len(names), segments_per_delete_max):
            await self._access.delete_segments(names[start : start + segments_per_delete_max])


async def _mark(context: StreamContext) -> None:
    """Before any segment goes: a run of the creation that makes segments afterwards takes them away again, and one that
    has not written its records yet finds this one in their place.

    ``StreamNotSealed``. Mark streams are never sealed.
    """
    record = await context.read(STATE)
    if record is not None and record.is_deleting:
        return
    if record is not None and not context.stream.startswith(MARK_PREFIX):
        require_ended(context, record.state)
    context.stage(STATE, StateRecord(StreamState.SEALED, DELETION))


def require_ended(context: StreamContext, state: StreamState) -> None:
    """``StreamNotSealed`` in a state in which a stream may not be deleted."""
    if state not in (StreamState.SEALED, StreamState.CREATING):
        raise StreamNotSealed(f"stream {context.name} is {state.value}, not sealed")
