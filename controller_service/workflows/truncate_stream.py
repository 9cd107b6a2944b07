"""Truncates a stream at a stream cut (docs/controller-api.md 3.6)."""

from __future__ import annotations

from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.segment_access.segment_access import SegmentAccess, calls_at_once_max
from controller_service.store.cut_validity import is_valid_in
from controller_service.store.history import bytes_between, place_in, walk_before
from controller_service.store.history_floor import has_records_to_lose, may_let_expire, note_head
from controller_service.store.records import TRUNCATION, StreamState, TruncationRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut, is_at_or_after
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.states import enter, leave, require_hold
from pravega_common.errors import InvalidArgument, RejectedError, SegmentNotFound, StreamNotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import scoped_name, segment_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

KIND: Final = "truncate_stream"

ACCEPTED = register("controller.truncate_accepted")
SEGMENTS_TRUNCATED = register("controller.truncate_segments_truncated")
SEGMENTS_DELETED = register("controller.truncate_segments_deleted")
COMPLETED = register("controller.truncate_completed")


class TruncateStream:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue, again: SecondDeletion) -> None:
        self._store = store
        self._access = access
        self._queue = queue
        self._again = again
        queue.register(KIND, self.handle)

    async def truncate(self, request_id: str, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Remove everything before the cut. Offsets are not compared with the segments' lengths.

        ``StreamNotFound``; ``SegmentSealed`` for a sealed stream; ``InvalidArgument`` for a cut that is no cut of the
        stream or lies before its head.
        """
        context = await self._store.open(scope, stream)
        await context.state()
        if not cut:
            raise InvalidArgument(f"an empty cut is no stream cut of {scope}/{stream}")
        payload = {
            "scope": scope,
            "stream": stream,
            "stream_id": context.stream_id,
            "cut": {str(identifier): offset for identifier, offset in cut.items()},
        }
        await run_and_wait(self._queue, Request(f"{KIND}-{request_id}", KIND, scoped_name(scope, stream), payload))

    async def handle(self, request: Request) -> None:
        scope, stream = request.payload["scope"], request.payload["stream"]
        cut = {int(identifier): offset for identifier, offset in request.payload["cut"].items()}
        holder = request.request_id
        context, hold = await enter(self._store, scope, stream, StreamState.TRUNCATING, holder)
        try:
            if context.stream_id != request.payload["stream_id"]:
                raise StreamNotFound.of(scope, stream)
            await self._truncate(scope, stream, cut, holder)
        except RejectedError:
            await leave(self._store, hold)
            raise
        # Not after a failure, whose repetition goes on: a stream that is sealed in between would stay half truncated.
        await leave(self._store, hold)

    async def _truncate(self, scope: str, stream: str, cut: SegmentOffsets, holder: str) -> None:
        context = await self._store.update(scope, stream, lambda fresh: self._accept(fresh, cut, holder), TRUNCATION)
        failpoint(ACCEPTED)
        record = await context.truncation()
        if not record.updating:
            await self._note_expiry(context)  # Whoever completed it may have been cut off before this.
            return
        places = [
            (segment_name(scope, stream, identifier), offset) for identifier, offset in cut.items() if offset >= 0
        ]
        await each_ended(lambda place: self._truncate_segment(*place), places, at_once=calls_at_once_max)
        failpoint(SEGMENTS_TRUNCATED)
        since = await place_in(context, record.since) if record.since else None
        head = await place_in(context, cut)
        async for page in walk_before(context, head, since):
            await self._again.promise_young(scope, stream, page)
            await self._access.delete_segments([segment.name(scope, stream) for segment in page])
        failpoint(SEGMENTS_DELETED)
        # Before and after: a run in between that found nothing to expire takes the entry out.
        if may_let_expire(await context.history(), head):
            await self._store.retained.put(scope, stream, context.stream_id)
        context = await self._store.update(scope, stream, lambda fresh: self._complete(fresh, head), TRUNCATION)
        failpoint(COMPLETED)
        await self._note_expiry(context)

    async def _note_expiry(self, context: StreamContext) -> None:
        """Have runs of the expiry look at the stream, if it has records to lose."""
        if has_records_to_lose(await context.history()):
            await self._store.retained.put(context.scope, context.stream, context.stream_id)

    async def _truncate_segment(self, segment: str, offset: int) -> None:
        try:
            await self._access.truncate_segment(segment, offset)
        except SegmentNotFound:
            # Only possible if another instance carries out the same request and a later one already.
            return

    async def _accept(self, context: StreamContext, cut: SegmentOffsets, holder: str) -> None:
        await require_hold(context, holder)
        old_record = await context.truncation()
        if old_record.cut == cut:
            return
        placed = await place_in(context, cut)
        if not await is_valid_in(context, placed):
            raise InvalidArgument(f"{cut} is no stream cut of {context.name}")
        old = await place_in(context, old_record.cut) if old_record.cut else None
        if old is not None and not is_at_or_after(placed, old):
            raise InvalidArgument(f"{cut} lies before the head {old_record.cut} of stream {context.name}")
        size = old_record.size_till + await bytes_between(context, old, placed)
        # A truncation that was cut off left segments before its cut, which this one deletes as well.
        since = old_record.since if old_record.updating else old_record.cut
        context.stage(TRUNCATION, TruncationRecord(dict(cut), size, True, since))

    async def _complete(self, context: StreamContext, head: PlacedCut) -> None:
        record = await context.truncation()
        if record.cut == head.cut and record.updating:
            context.stage(TRUNCATION, TruncationRecord(dict(head.cut), record.size_till))
            await note_head(context, head, self._store.clock.wall_ms())
