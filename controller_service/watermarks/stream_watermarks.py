"""Advances the watermark of one stream: folds the marks of its writers, and writes what is due to its mark stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from controller_service.store.records import EpochRecord, SegmentRecord, StreamState, epoch_key
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.writer_marks import WriterMarks
from controller_service.watermarks.mark_segment import MarkSegmentEnd, MarkSegments
from controller_service.watermarks.participation import MarkFold
from controller_service.watermarks.positions import fill, join
from controller_service.watermarks.watermark import SegmentPosition, Watermark
from controller_service.watermarks.watermark_ages import NewestWatermark, WatermarkAges
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_stream import DeleteStream
from pravega_common.errors import SegmentNotFound, StreamNotFound
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import mark_stream, segment_epoch
from pravega_common.runtime.failpoints import failpoint, register

_MARK_CONFIGURATION: Final = StreamConfiguration(ScalingPolicy.fixed(1))
epochs_ahead_max: Final = 2
"""A writer may follow a scale, or a rolling commit, before its epochs are current."""
_ENDING: Final = (StreamState.SEALING, StreamState.SEALED)
_UNUSABLE: Final = (StreamState.CREATING, StreamState.SEALED)
"""The states in which a mark stream takes no watermarks, and will not unless it is completed or replaced."""

MARK_STREAM_CREATED = register("controller.watermark_stream_created")


class StreamWatermarks:
    def __init__(
        self,
        store: StreamStore,
        marks: WriterMarks,
        segments: MarkSegments,
        create: CreateStream,
        delete: DeleteStream,
        ages: WatermarkAges,
    ) -> None:
        self._ages = ages
        self._store = store
        self._marks = marks
        self._segments = segments
        self._create = create
        self._delete = delete
        self._log = structlog.get_logger(service="watermarks")

    async def advance(self, scope: str, stream: str) -> bool:
        """Do what is due; whether the stream has marks still.

        Idempotent, and harmless in several instances at once. ``StreamNotFound``, and whatever the store and the
        segments' calls raise.
        """
        context = await self._store.open(scope, stream)
        timeout_ms = (await context.configuration()).configuration.timestamp_aggregation_timeout_ms
        segment = await self._mark_segment(context)
        if segment is None:
            return False
        end = await self._segments.end_of(segment)
        fold = MarkFold(end.newest, timeout_ms, self._store.clock.wall_ms())
        has_marks = reported_again = False
        async for writer, mark, version in self._marks.all_of(scope, stream):
            if fold.add(mark):
                has_marks = True
            elif not await self._marks.forget(context, writer, version):
                reported_again = True
        # A writer that came back in the meantime counts, from the next run on.
        if reported_again:
            return True
        if fold.due is not None:
            position = await self._position(context, fold.reached, end.newest)
            if position:
                written = Watermark(*fold.due, position)
                if await self._segments.append(segment, end, written):
                    end = replace(end, newest=written, changed_ms=self._store.clock.wall_ms())
        self._note_age(context.name, end, fold)
        return has_marks

    async def newest(self, scope: str, stream: str) -> NewestWatermark | None:
        """The newest watermark of a stream; None without one. Whether it is held is not looked at."""
        try:
            name = mark_stream(stream)
            epoch = await (await self._store.open(scope, name)).current_epoch()
            return _newest(await self._segments.end_of(epoch.names(scope, name)[0]))
        except (StreamNotFound, SegmentNotFound):
            return None

    def _note_age(self, stream: str, end: MarkSegmentEnd, fold: MarkFold) -> None:
        newest = _newest(end, is_held=fold.is_held)
        if fold.is_empty or newest is None:
            self._ages.forget(stream)
        else:
            self._ages.saw(stream, newest)

    # ---- the position ------------------------------------------------------------------------------------------------

    async def _position(
        self, context: StreamContext, reached: Mapping[int, int], last: Watermark | None
    ) -> tuple[SegmentPosition, ...]:
        """The position behind all writers and the last watermark; empty if nobody named a segment of the stream."""
        before = () if last is None else last.position
        segments = await self._segments_of(context, reached)
        joined = join((*before, *(_placed(item, reached[item.segment_id]) for item in segments)))
        if len(segments) < len(reached):
            self._log.info("a writer's position names segments that the stream does not have", stream=context.name)
        if not joined:
            return ()
        newest = max(segment_epoch(item.segment_id) for item in joined)
        return fill(joined, await context.epoch(max(newest, (await context.history()).oldest_epoch)))

    @staticmethod
    async def _segments_of(context: StreamContext, identifiers: Mapping[int, int]) -> list[SegmentRecord]:
        """Those of the segments that the stream has: from the current epoch, else from that of their creation, or the
        oldest on record, which has what was replaced since."""
        found: dict[int, SegmentRecord] = {}

        def look_at(epoch: EpochRecord) -> None:
            found.update((item.segment_id, item) for item in epoch.segments if item.segment_id in identifiers)

        current = await context.current_epoch()
        look_at(current)
        oldest = (await context.history()).oldest_epoch
        numbers = sorted({max(segment_epoch(item), oldest) for item in identifiers if item not in found})
        async for before in context.walk_epochs([number for number in numbers if number < current.epoch]):
            look_at(before)
        for number in range(current.epoch + 1, current.epoch + 1 + epochs_ahead_max):
            if number in numbers:
                ahead = await context.read(epoch_key(number))
                if ahead is not None:
                    look_at(ahead)
        return list(found.values())

    # ---- the mark stream ---------------------------------------------------------------------------------------------

    async def _mark_segment(self, context: StreamContext) -> str | None:
        """The name of the segment of the mark stream; None for a stream that ends, and has none."""
        name = mark_stream(context.stream)
        epoch = await self._complete_epoch(context.scope, name)
        if epoch is None:
            if not await self._create_mark_stream(context):
                return None
            epoch = await (await self._store.open(context.scope, name)).current_epoch()
        return epoch.names(context.scope, name)[0]

    async def _complete_epoch(self, scope: str, name: str) -> EpochRecord | None:
        """The epoch of a mark stream; None for one that is missing, half made, which nobody else would complete, or
        sealed."""
        try:
            marks = await self._store.open(scope, name)
            return None if await marks.state() in _UNUSABLE else await marks.current_epoch()
        except StreamNotFound:
            return None

    async def _create_mark_stream(self, context: StreamContext) -> bool:
        """Make, complete or replace a mark stream; False if the stream ends.

        A deletion looks for the mark stream first, and only a sealed stream can be deleted: a stream that is open
        after the mark stream was made will be deleted with it.
        """
        scope, name = context.scope, mark_stream(context.stream)
        if await context.state() in _ENDING:
            return False
        await self._delete_sealed(scope, name)
        await self._create.create_within(scope, name, _MARK_CONFIGURATION)
        failpoint(MARK_STREAM_CREATED)
        if await self._is_open(scope, context.stream):
            return True
        made = await self._store.entry(scope, name)
        if made is not None:
            await self._delete.carry_out(scope, name, made.stream_id)
        return False

    async def _delete_sealed(self, scope: str, name: str) -> None:
        """Delete a mark stream that a client sealed: nobody would open it again, and its watermarks end there."""
        try:
            marks = await self._store.open(scope, name)
            is_sealed = await marks.state() is StreamState.SEALED
        except StreamNotFound:
            return
        if is_sealed:
            self._log.warning("a mark stream was sealed and is made again", stream=marks.name)
            await self._delete.carry_out(scope, name, marks.stream_id)

    async def _is_open(self, scope: str, stream: str) -> bool:
        try:
            return await (await self._store.open(scope, stream)).state() not in _ENDING
        except StreamNotFound:
            return False


def _newest(end: MarkSegmentEnd, *, is_held: bool = False) -> NewestWatermark | None:
    if end.newest is None:
        return None
    return NewestWatermark(end.newest.lower_time, end.newest.upper_time, end.changed_ms, is_held)


def _placed(segment: SegmentRecord, offset: int) -> SegmentPosition:
    return SegmentPosition(segment.segment_id, segment.key_start, segment.key_end, offset)
