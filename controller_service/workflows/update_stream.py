"""Replaces a stream's configuration (docs/controller-api.md 3.4)."""

from __future__ import annotations

import dataclasses
from typing import Final

from controller_service.policies.auto_scale import check_policy
from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.segment_access.segment_access import SegmentAccess, calls_at_once_max
from controller_service.store.epochs import equal_ranges, initial_epoch, plan_scale
from controller_service.store.holds import Hold
from controller_service.store.records import (
    CONFIGURATION,
    TRANSITION,
    EpochRecord,
    EpochTransitionRecord,
    StreamState,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.scale_stream import carry_out, undo
from controller_service.workflows.states import Superseded, enter, leave, require_hold
from controller_service.workflows.stream_use import StreamCounts
from pravega_common.errors import RejectedError, SegmentSealed, StreamNotFound
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import scoped_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import each_ended

KIND: Final = "update_stream"

CONFIGURATION_WRITTEN = register("controller.update_configuration_written")
POLICY_PUSHED = register("controller.update_policy_pushed")


class UpdateStream:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue) -> None:
        self._store = store
        self._access = access
        self._queue = queue
        self._use = StreamCounts(store)
        queue.register(KIND, self.handle)

    async def update(self, request_id: str, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        """The whole configuration is replaced. ``StreamNotFound``; ``SegmentSealed`` for a sealed stream;
        ``InvalidArgument`` for a bad number of segments or a new policy by which nothing scales, ``QuotaExceeded`` for
        more than the scope has room for.
        """
        initial_epoch(0, configuration.scaling.min_segments, 0)
        context = await self._store.update(scope, stream, lambda fresh: _take_ticket(fresh, configuration.scaling))
        payload = {
            "scope": scope,
            "stream": stream,
            "stream_id": context.stream_id,
            "ticket": (await context.configuration()).updates_promised,
            "configuration": encode(configuration).decode(),
        }
        await run_and_wait(self._queue, Request(f"{KIND}-{request_id}", KIND, scoped_name(scope, stream), payload))

    async def handle(self, request: Request) -> None:
        scope, stream = request.payload["scope"], request.payload["stream"]
        configuration = decode(StreamConfiguration, request.payload["configuration"].encode())
        holder = request.request_id
        context, hold = await enter(self._store, scope, stream, StreamState.UPDATING, holder)
        if context.stream_id != request.payload["stream_id"]:
            await leave(self._store, hold)
            raise StreamNotFound.of(scope, stream)
        ticket = request.payload["ticket"]
        try:
            await self._carry_out(context, hold, configuration, ticket, holder)
        except RejectedError:
            await self._give_up(context, hold, ticket, holder)
            await self._use.settle(scope, stream, context.stream_id)
            raise
        await self._use.settle(scope, stream, context.stream_id)

    async def _carry_out(
        self, context: StreamContext, hold: Hold, configuration: StreamConfiguration, ticket: int, holder: str
    ) -> None:
        scope, stream = context.scope, context.stream
        segments = configuration.scaling.min_segments
        if segments > len((await context.current_epoch()).segments):
            await self._use.reserve(scope, stream, context.stream_id, segments)
        await self._store.retained.note(scope, stream, context.stream_id, configuration)
        await self._store.update(
            scope, stream, lambda fresh: _store_configuration(fresh, configuration, ticket, holder), TRANSITION
        )
        failpoint(CONFIGURATION_WRITTEN)
        await self._store.retained.note(scope, stream, context.stream_id, configuration)
        await self._store.set_tags(scope, stream, context.stream_id, configuration.tags)
        # Also when the stored policy is the same: an attempt that was cut off may have stored it and pushed nothing.
        epoch = await context.current_epoch()
        policy = configuration.scaling
        await each_ended(
            lambda name: self._access.update_policy(name, policy.scale_type, policy.target_rate),
            epoch.names(scope, stream),
            at_once=calls_at_once_max,
        )
        failpoint(POLICY_PUSHED)
        now_ms = self._store.clock.wall_ms()
        await self._store.update(scope, stream, lambda fresh: _fix_count(fresh, holder, now_ms), TRANSITION)
        await carry_out(self._store, self._access, hold, holder)

    async def _give_up(self, context: StreamContext, hold: Hold, ticket: int, holder: str) -> None:
        """Undo an update that is refused, as far as this run still has the stream, and leave."""
        scope, stream = context.scope, context.stream
        try:
            await undo(self._store, self._access, scope, stream, holder)
            restored = await self._store.update(scope, stream, lambda fresh: _restore(fresh, ticket, holder))
            configuration = (await restored.configuration()).configuration
            await self._store.retained.note(scope, stream, context.stream_id, configuration)
            await self._store.set_tags(scope, stream, context.stream_id, configuration.tags)
            await leave(self._store, hold)
        except StreamNotFound:
            return


async def _take_ticket(context: StreamContext, policy: ScalingPolicy) -> None:
    if await context.state() in (StreamState.SEALING, StreamState.SEALED):
        raise SegmentSealed(context.name, f"stream {context.name} is sealed")
    record = await context.configuration()
    standing = record.configuration.scaling
    if dataclasses.replace(policy, min_segments=standing.min_segments) != standing:
        check_policy(policy)
    context.stage(CONFIGURATION, dataclasses.replace(record, updates_promised=record.updates_promised + 1))


async def _store_configuration(
    context: StreamContext, configuration: StreamConfiguration, ticket: int, holder: str
) -> None:
    await require_hold(context, holder)
    record = await context.configuration()
    if record.updates_applied > ticket:
        raise Superseded(f"update {ticket} of {context.name} was followed by update {record.updates_applied}")
    if record.updates_applied < ticket:
        current = await context.current_epoch()
        # What cannot be planned is refused while nothing is stored.
        _replacement(current, configuration.scaling, 0, holder)
        applied = dataclasses.replace(
            record, configuration=configuration, updates_applied=ticket, previous=record.configuration
        )
        context.stage(CONFIGURATION, applied)


async def _restore(context: StreamContext, ticket: int, holder: str) -> None:
    """The configuration before a refused update."""
    record = await context.configuration()
    is_held = (await context.state_record()).holder == holder
    if is_held and record.updates_applied == ticket and record.previous is not None:
        context.stage(CONFIGURATION, dataclasses.replace(record, configuration=record.previous, previous=None))


async def _fix_count(context: StreamContext, holder: str, now_ms: int) -> None:
    """Plan the replacement of all segments if their number does not fit the policy.

    A scale that was planned and not begun is dropped; a plan of this very request is kept.
    """
    await require_hold(context, holder)
    current = await context.current_epoch()
    pending = await context.transition()
    if pending.request_id == holder and pending.active_epoch == current.epoch:
        return
    plan = _replacement(current, (await context.configuration()).configuration.scaling, now_ms, holder)
    if plan is not None:
        context.stage(TRANSITION, plan)


def _replacement(current: EpochRecord, policy: ScalingPolicy, now_ms: int, holder: str) -> EpochTransitionRecord | None:
    """The scale that makes the number of segments fit the policy; None if it does. ``PreconditionFailed``."""
    count = len(current.segments)
    if count == policy.min_segments or (count > policy.min_segments and policy.scale_type is not ScaleType.FIXED):
        return None
    ranges = equal_ranges(policy.min_segments)
    return plan_scale(current, current.segment_ids, ranges, policy.min_segments, now_ms, holder)
