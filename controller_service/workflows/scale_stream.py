"""Replaces segments by others (docs/controller-api.md 3.5): the manual scale, and the steps that every scale shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import Counter

from controller_service.errors import PreconditionFailed
from controller_service.queue.request_ids import digest_of
from controller_service.queue.request_queue import Answer, Request, RequestQueue
from controller_service.segment_access.late_segments import take_away_if_late
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import Range, next_epoch, plan_scale, rebase
from controller_service.store.holds import Hold, stage_epoch
from controller_service.store.records import (
    EMPTY_TRANSITION,
    TRANSITION,
    EpochTransitionRecord,
    SealedSegmentRecord,
    StreamState,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.states import Superseded, enter, leave, leave_for
from controller_service.workflows.stream_use import StreamCounts
from pravega_common.errors import (
    DataCorruption,
    FailedError,
    PravegaError,
    RejectedError,
    SegmentSealed,
    StreamNotFound,
)
from pravega_common.invariants import check
from pravega_common.names import scoped_name
from pravega_common.runtime.failpoints import failpoint, register

KIND: Final = "scale_stream"

PLANNED = register("controller.scale_planned")
SEGMENTS_CREATED = register("controller.scale_segments_created")
EPOCH_WRITTEN = register("controller.scale_epoch_written")
SEGMENTS_SEALED = register("controller.scale_segments_sealed")
EPOCH_MOVED = register("controller.scale_epoch_moved")


_COUNTED: Final = Counter(
    "pravega_controller_scales",
    "Scales that this controller carried out, by whether a stream then has more segments, fewer, or as many",
    ["segments"],
)
SCALES: Final = {sign: _COUNTED.labels(what) for sign, what in ((1, "more"), (-1, "fewer"), (0, "as_many"))}


class ScaleFailed(FailedError):
    """A scale cannot go on now, and cannot go back: it is tried again."""


class ScaleStream:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue) -> None:
        self._store = store
        self._access = access
        self._queue = queue
        self._use = StreamCounts(store)
        queue.register_answering(KIND, self.handle)

    async def start(
        self, scope: str, stream: str, to_seal: Sequence[int], ranges: Sequence[Range]
    ) -> EpochTransitionRecord:
        """Begin a scale; returns once its plan is stored, and the same input again returns the same plan.

        ``PreconditionFailed``, ``InvalidArgument``, ``QuotaExceeded``, ``SegmentSealed`` (of the stream) and
        ``StreamNotFound`` refuse it.
        """
        context = await self._store.open(scope, stream, TRANSITION)
        epoch = (await context.current_epoch()).epoch
        identity = digest_of([sorted(to_seal), sorted(ranges)])
        request_id = f"{KIND}-{context.stream_id}-{epoch}-{identity}"
        pending = await context.transition()
        if pending.request_id == request_id:
            return pending
        payload = {
            "scope": scope,
            "stream": stream,
            "stream_id": context.stream_id,
            "to_seal": list(to_seal),
            "ranges": [list(item) for item in ranges],
            # Controllers of earlier versions plan with it.
            "now_ms": self._store.clock.wall_ms(),
        }
        submitted = await self._queue.submit(Request(request_id, KIND, scoped_name(scope, stream), payload))
        plan: EpochTransitionRecord = await submitted.first_answer()
        return plan

    async def handle(self, request: Request, answer: Answer) -> None:
        """The first answer is the plan, as soon as it is stored."""
        scope, stream, holder = request.payload["scope"], request.payload["stream"], request.request_id
        hold = None
        try:
            await self._reserve(request)
            answer(await self._planned_transition(request))
            failpoint(PLANNED)
            _, hold = await enter(self._store, scope, stream, StreamState.SCALING, holder)
            # Again, since a rolling commit may have come in between; from here on nothing moves the epoch.
            await self._planned_transition(request)
            await carry_out(self._store, self._access, hold, holder)
        except RejectedError:
            await self._give_up(scope, stream, holder, hold)
            await self._use.settle(scope, stream, request.payload["stream_id"])
            raise
        await self._use.settle(scope, stream, request.payload["stream_id"])

    async def _reserve(self, request: Request) -> None:
        """Count the segments that the scale adds, before its plan is stored; ``QuotaExceeded``."""
        payload = request.payload
        added = len(payload["ranges"]) - len(payload["to_seal"])
        if added <= 0:
            return
        context = await self._store.open(payload["scope"], payload["stream"], TRANSITION)
        current, pending = await context.current_epoch(), await context.transition()
        is_known = all(current.find(identifier) is not None for identifier in payload["to_seal"])
        # What cannot be planned is refused for that reason, and what is planned was counted before.
        if is_known and pending.is_empty:
            segments = len(current.segments) + added
            await self._use.reserve(context.scope, context.stream, payload["stream_id"], segments)

    async def _planned_transition(self, request: Request) -> EpochTransitionRecord:
        scope, stream = request.payload["scope"], request.payload["stream"]
        context = await self._store.update(scope, stream, lambda fresh: self._plan(fresh, request), TRANSITION)
        return await context.transition()

    async def _give_up(self, scope: str, stream: str, holder: str, hold: Hold | None) -> None:
        """Remove what is left of a scale that is refused, or was finished by a run that died before its last step."""
        try:
            await undo(self._store, self._access, scope, stream, holder)
            if hold is not None:
                await leave(self._store, hold)
            else:
                await leave_for(self._store, scope, stream, holder)
        except StreamNotFound:
            return

    async def _plan(self, context: StreamContext, request: Request) -> None:
        payload = request.payload
        if context.stream_id != payload["stream_id"]:
            raise StreamNotFound.of(context.scope, context.stream)
        if await context.state() in (StreamState.SEALING, StreamState.SEALED):
            raise SegmentSealed(context.name, f"stream {context.name} is sealed")
        pending = await context.transition()
        current = await context.current_epoch()
        if not pending.is_empty and pending.request_id != request.request_id:
            raise PreconditionFailed(f"another scale of {context.name}, to epoch {pending.new_epoch}, is in flight")
        if not pending.is_empty and pending.active_epoch == current.epoch:
            return
        if not pending.is_empty:
            # A rolling commit moved the epoch while this scale waited for its turn.
            context.stage(TRANSITION, rebase(pending, await context.epoch(pending.active_epoch), current))
            return
        min_segments = (await context.configuration()).configuration.scaling.min_segments
        ranges = [(low, high) for low, high in payload["ranges"]]
        # By the clock that ages are measured with, and now: the request may have waited.
        now_ms = self._store.clock.wall_ms()
        plan = plan_scale(current, payload["to_seal"], ranges, min_segments, now_ms, request.request_id)
        context.stage(TRANSITION, plan)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


async def carry_out(store: StreamStore, access: SegmentAccess, hold: Hold, holder: str) -> None:
    """Do the stored transition, if it is this request's, and leave the stream active. Every step may have been done
    before.

    The stream must be held for the request by a state (scaling, updating) that keeps others away.
    """
    scope, stream = hold.scope, hold.stream
    context = await store.open(scope, stream, TRANSITION)
    transition = await context.transition()
    if transition.request_id == holder:
        try:
            await _make_epoch(store, access, context, transition)
        except DataCorruption:
            # Whoever wrote another epoch of this number needs the stream to finish its work; this one comes back then.
            await leave(store, hold)
            raise
        except PravegaError:
            await take_away_if_late(store, access, context, transition.new_segments)
            raise
        failpoint(EPOCH_WRITTEN)
        try:
            await _move_to_epoch(store, access, context, transition)
        except StreamNotFound:
            raise
        except RejectedError as error:
            # The queue drops what is rejected, but the epoch is on record: there is no way back.
            raise ScaleFailed(f"scale of {context.name} to epoch {transition.new_epoch}: {error}") from error
        SCALES[_sign(len(transition.new_segments) - len(transition.segments_to_seal))].inc()
        failpoint(EPOCH_MOVED)
    await leave(store, hold)


async def _make_epoch(
    store: StreamStore, access: SegmentAccess, context: StreamContext, transition: EpochTransitionRecord
) -> None:
    """Create the new segments and put their epoch on record."""
    scope, stream = context.scope, context.stream
    policy = (await context.configuration()).configuration
    await access.create_segments(
        [segment.name(scope, stream) for segment in transition.new_segments],
        scale_type=policy.scaling.scale_type,
        target_rate=policy.scaling.target_rate,
        rollover_size_bytes=policy.rollover_size_bytes,
    )
    failpoint(SEGMENTS_CREATED)
    await store.update(scope, stream, lambda fresh: _write_epoch(fresh, transition), TRANSITION)


async def _move_to_epoch(
    store: StreamStore, access: SegmentAccess, context: StreamContext, transition: EpochTransitionRecord
) -> None:
    """Seal the replaced segments and make the new epoch the current one."""
    scope, stream = context.scope, context.stream
    current = await context.current_epoch()
    sealed = [segment for segment in current.segments if segment.segment_id in transition.segments_to_seal]
    sealed_names = [segment.name(scope, stream) for segment in sealed]
    await access.seal_segments(sealed_names)
    failpoint(SEGMENTS_SEALED)
    infos = await access.infos(sealed_names)
    sizes = {segment.segment_id: info.length for segment, info in zip(sealed, infos, strict=True)}
    await store.update(scope, stream, lambda fresh: _complete(fresh, transition, sizes), TRANSITION)


async def undo(store: StreamStore, access: SegmentAccess, scope: str, stream: str, holder: str) -> None:
    """Remove the plan of a request that is refused, and the segments that were made for it.

    Nothing happens if the plan is another request's, or its epoch is on record already.
    """
    planned: list[EpochTransitionRecord] = []

    async def change(context: StreamContext) -> None:
        transition = await context.transition()
        planned.clear()
        if transition.request_id != holder:
            return
        # If the current epoch is another one, the plan was never begun: the names may be those of other segments.
        if (await context.current_epoch()).epoch == transition.active_epoch:
            if await context.read(epoch_key(transition.new_epoch)) is not None:
                return
            planned.append(transition)
        context.stage(TRANSITION, EMPTY_TRANSITION)

    await store.update(scope, stream, change, TRANSITION)
    for transition in planned:
        await access.delete_segments([segment.name(scope, stream) for segment in transition.new_segments])


async def _write_epoch(context: StreamContext, transition: EpochTransitionRecord) -> None:
    """The new epoch and the successors of what will be sealed, before anything is sealed."""
    if await context.transition() != transition:
        raise Superseded(f"scale of {context.name} to epoch {transition.new_epoch} was finished elsewhere")
    current = await context.current_epoch()
    check(current.epoch == transition.active_epoch, "a scale of another epoch", stream=context.name)
    await stage_epoch(context, next_epoch(current, transition))
    # Written as it is, so that another run cannot undo the plan at the same time.
    context.stage(TRANSITION, transition)
    await context.prefetch(*map(sealed_segment_key, transition.segments_to_seal))
    for identifier in transition.segments_to_seal:
        if await context.read(sealed_segment_key(identifier)) is None:
            context.stage(sealed_segment_key(identifier), SealedSegmentRecord(transition.new_epoch))


async def _complete(context: StreamContext, transition: EpochTransitionRecord, sizes: dict[int, int]) -> None:
    """Sizes of the sealed segments, the new current epoch and the end of the transition, in one step."""
    if await context.transition() != transition:
        return
    await context.prefetch(*map(sealed_segment_key, sizes))
    for identifier, size in sizes.items():
        await context.put(sealed_segment_key(identifier), SealedSegmentRecord(transition.new_epoch, size))
    context.stage_current(await context.epoch(transition.new_epoch))
    context.stage(TRANSITION, EMPTY_TRANSITION)
