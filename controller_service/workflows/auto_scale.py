"""Splits hot segments and merges cold neighbours, as stores report their traffic (docs/controller-api.md 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import Counter

from controller_service.errors import PreconditionFailed, QuotaExceeded
from controller_service.policies.auto_scale import (
    AutoScaleLimits,
    cold_group,
    parts_of,
    splits_of,
    with_mark,
    without_marks,
)
from controller_service.queue.request_queue import Postpone
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import Range
from controller_service.store.records import (
    COLD_SEGMENTS,
    ColdMark,
    ColdSegmentsRecord,
    EpochRecord,
    SegmentRecord,
    StreamState,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.scale_stream import ScaleStream
from pravega_common.errors import SegmentNotFound, SegmentSealed, StreamNotFound
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.names import is_internal_stream
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register

COLD_MARKED = register("controller.auto_scale_marked")

REFUSED_BY_QUOTA: Final = Counter(
    "pravega_controller_auto_scales_refused", "Automatic scales that the quota of a scope did not admit"
)


class AutoScale:
    """Decides about the reports of stores; what it decides is a scale like any other.

    A report may come twice, late, at two controllers at once, or about a segment that is gone: everything is decided
    by the records, and a scale is known by the segments that it replaces.
    """

    def __init__(
        self, store: StreamStore, access: SegmentAccess, scale: ScaleStream, clock: Clock, limits: AutoScaleLimits
    ) -> None:
        self._store = store
        self._access = access
        self._scale = scale
        self._clock = clock
        self._limits = limits
        self._log = structlog.get_logger(service="auto-scale")

    async def handle(self, event: AutoScaleEvent) -> None:
        """Split, mark or merge, or leave the stream as it is; a scale goes on after this returns.

        ``Postpone`` while another scale of the stream is under way.
        """
        now_ms = self._clock.wall_ms()
        if is_internal_stream(event.scope, event.stream) or now_ms - event.timestamp_ms > self._limits.report_valid_ms:
            return
        try:
            if event.direction is ScaleDirection.UP:
                await self._split(event, now_ms)
            else:
                await self._mark_and_merge(event, now_ms)
        except (StreamNotFound, SegmentSealed):
            return  # The stream is gone, or takes no events any more.

    # ---- up ----------------------------------------------------------------------------------------------------------

    async def _split(self, event: AutoScaleEvent, now_ms: int) -> None:
        context = await self._store.open(event.scope, event.stream, COLD_SEGMENTS)
        found = await self._reported(context, event, now_ms)
        if found is None:
            return
        policy, epoch, segment = found
        await self._unmark(event, segment.segment_id)
        splits = splits_of(policy, event.splits, len(epoch.segments))
        if not splits:
            self._log.warning("a hot stream has as many segments as it can have", stream=context.name)
            return
        await self._start(event, [segment.segment_id], parts_of(segment, splits))

    async def _unmark(self, event: AutoScaleEvent, *identifiers: int) -> None:
        """Forget that these segments were cold."""

        async def change(context: StreamContext) -> None:
            record = await context.read(COLD_SEGMENTS)
            if record is not None and any(identifier in record.marks for identifier in identifiers):
                context.stage(COLD_SEGMENTS, without_marks(record, *identifiers))

        await self._store.update(event.scope, event.stream, change, COLD_SEGMENTS)

    # ---- down --------------------------------------------------------------------------------------------------------

    async def _mark_and_merge(self, event: AutoScaleEvent, now_ms: int) -> None:
        marked = await self._store.update(
            event.scope, event.stream, lambda context: self._mark(context, event, now_ms), COLD_SEGMENTS
        )
        failpoint(COLD_MARKED)
        group = await self._cold_group(marked, event, now_ms)
        if not group:
            return
        warm = await self._warmed_up(event, group, (await self._marks(marked)).marks)
        if warm:
            await self._unmark(event, *warm)
            group = await self._cold_group(await self._store.open(event.scope, event.stream), event, now_ms)
        if group:
            merged = (group[0].key_start, group[-1].key_end)
            await self._start(event, [segment.segment_id for segment in group], [merged])

    async def _mark(self, context: StreamContext, event: AutoScaleEvent, now_ms: int) -> None:
        found = await self._reported(context, event, now_ms)
        if found is None:
            return
        _, epoch, segment = found
        # Not by a store's clock that is ahead: what is busy again would count as cold until that time comes.
        until_ms = 0 if event.is_silent else min(event.timestamp_ms, now_ms) + self._limits.report_valid_ms
        record = await self._marks(context)
        changed = with_mark(record, epoch, segment.segment_id, ColdMark(event.timestamp_ms, until_ms), now_ms)
        if changed != record:
            context.stage(COLD_SEGMENTS, changed)

    async def _cold_group(
        self, context: StreamContext, event: AutoScaleEvent, now_ms: int
    ) -> tuple[SegmentRecord, ...]:
        found = await self._reported(context, event, now_ms)
        if found is None:
            return ()
        policy, epoch, segment = found
        return cold_group(epoch, segment.segment_id, (await self._marks(context)).marks, policy.min_segments, now_ms)

    async def _warmed_up(
        self, event: AutoScaleEvent, group: Sequence[SegmentRecord], marks: dict[int, ColdMark]
    ) -> list[int]:
        """The segments whose silent marks are not true any more: nothing says so but the time of their last change."""
        silent = [segment for segment in group if marks[segment.segment_id].until_ms == 0]
        try:
            infos = await self._access.infos([segment.name(event.scope, event.stream) for segment in silent])
        except SegmentNotFound:
            return []  # Another scale or a deletion is at work, which the start of this one meets.
        return [
            segment.segment_id
            for segment, info in zip(silent, infos, strict=True)
            if info.last_modified_ms > marks[segment.segment_id].marked_ms
        ]

    # ---- both --------------------------------------------------------------------------------------------------------

    async def _reported(
        self, context: StreamContext, event: AutoScaleEvent, now_ms: int
    ) -> tuple[ScalingPolicy, EpochRecord, SegmentRecord] | None:
        """The policy, the current epoch and the reported segment; None if the report changes nothing."""
        policy = (await context.configuration()).configuration.scaling
        if policy.scale_type is ScaleType.FIXED:
            return None
        if await context.state() in (StreamState.CREATING, StreamState.SEALING, StreamState.SEALED):
            return None
        epoch = await context.current_epoch()
        segment = epoch.find(event.segment_id)
        # Earlier versions took the time from clients: one that lies further ahead is of a wrong clock, and no age.
        if segment is None or abs(now_ms - segment.created_ms) < self._limits.cooldown_ms:
            return None
        return policy, epoch, segment

    @staticmethod
    async def _marks(context: StreamContext) -> ColdSegmentsRecord:
        return await context.read(COLD_SEGMENTS) or ColdSegmentsRecord()

    async def _start(self, event: AutoScaleEvent, to_seal: list[int], ranges: list[Range]) -> None:
        """Begin the scale. One that is refused is looked at again: the records say whether it is still wanted."""
        self._log.info("scale", stream=event.routing_key, replaced=to_seal, by=len(ranges), report=event.request_id)
        try:
            await self._scale.start(event.scope, event.stream, to_seal, ranges)
        except PreconditionFailed as error:
            raise Postpone(str(error)) from error
        except QuotaExceeded as error:
            REFUSED_BY_QUOTA.inc()
            self._log.info("a hot stream is not split", stream=event.routing_key, reason=str(error))
