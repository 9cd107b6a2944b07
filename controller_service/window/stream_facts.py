"""Tells what is on record about one stream: configuration, head and tail, size, subscribers."""

from __future__ import annotations

from typing import Final

from controller_service.store.history import bytes_between, place_in
from controller_service.store.records import RETENTION_SET, SUBSCRIBERS, TRANSITION, TRUNCATION, SubscriberRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut
from controller_service.window.answers import Cut, CutPosition, StreamDescription, StreamPicture, Subscriber
from controller_service.window.looks import SegmentsSeen, segments_of
from controller_service.window.parts import WindowParts
from controller_service.window.picture import columns_max, picture_of, read_picture, segment_label, segments_read_max
from controller_service.window.policies import retention_in_words, scaling_in_words
from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets

positions_max: Final = 50
"""Positions of a cut that an answer lists."""
subscribers_max: Final = 20
"""Subscribers whose distance from the tail is worked out."""


async def picture(parts: WindowParts, scope: str, stream: str, first: int | None, last: int | None) -> StreamPicture:
    """``StreamNotFound``; ``InvalidArgument`` for epochs that the stream does not have."""
    context = await parts.store.open(scope, stream, TRUNCATION)
    records = await read_picture(context, first, last)
    seen = await segments_of(parts, scope, stream, await context.current_epoch())
    return await picture_of(context, records, seen.infos, seen.unknown)


async def facts(parts: WindowParts, scope: str, stream: str) -> StreamDescription:
    """``StreamNotFound``."""
    context = await parts.store.open(scope, stream, TRUNCATION, TRANSITION, RETENTION_SET, SUBSCRIBERS)
    state, configuration = await context.state_record(), (await context.configuration()).configuration
    current, oldest = await context.current_epoch(), (await context.history()).oldest_epoch
    transition, head = await context.transition(), (await context.truncation()).cut
    cuts = await context.read(RETENTION_SET)
    references = cuts.references if cuts else ()
    seen = await segments_of(parts, scope, stream, current)
    tail = None if seen.unknown else {key: info.length for key, info in seen.infos.items()}
    sizes = _Sizes(context, tail)
    size = await sizes.behind(head)
    return StreamDescription(
        scope=scope,
        stream=stream,
        at_ms=parts.clock.wall_ms(),
        state=state.state.value,
        holder=state.holder,
        scaling=scaling_in_words(configuration.scaling),
        retention=retention_in_words(configuration.retention),
        tags=list(configuration.tags),
        oldest_epoch=oldest,
        current_epoch=current.epoch,
        segment_count=len(current.segments),
        splits=current.splits,
        merges=current.merges,
        scaling_to_epoch=None if transition.is_empty else transition.new_epoch,
        head=_cut(head) if head else None,
        tail=None if tail is None else _cut(tail),
        size_bytes=size,
        retention_cuts=len(references),
        last_retention_cut_ms=references[-1].recorded_ms if references else None,
        subscribers=await _subscribers(context, sizes),
        unknown=_unknown(seen, sizes),
    )


class _Sizes:
    """Works out how many bytes lie behind a cut, as long as that needs few epochs."""

    def __init__(self, context: StreamContext, tail: SegmentOffsets | None) -> None:
        self._context = context
        self._tail = tail
        self.was_too_long = False

    async def behind(self, cut: SegmentOffsets) -> int | None:
        """Bytes from a cut to the tail; an empty cut is the start of the stream. None if that cannot be said."""
        if self._tail is None:
            return None
        current, oldest = await self._context.current_epoch(), (await self._context.history()).oldest_epoch
        placed: PlacedCut | None = await place_in(self._context, cut) if cut else None
        epochs = current.epoch - (placed.first_epoch if placed else oldest) + 1
        if epochs > columns_max or epochs * len(current.segments) > segments_read_max or (not placed and oldest):
            self.was_too_long = True
            return None
        return await bytes_between(self._context, placed, await place_in(self._context, self._tail))


async def _subscribers(context: StreamContext, sizes: _Sizes) -> list[Subscriber]:
    record = await context.read(SUBSCRIBERS)
    known = list(record.subscribers.values()) if record else []
    return [await _subscriber(one, sizes) for one in known[:subscribers_max]]


async def _subscriber(record: SubscriberRecord, sizes: _Sizes) -> Subscriber:
    unknown, behind = None, None
    try:
        behind = await sizes.behind(record.cut) if record.cut else None
    except InvalidArgument:
        unknown = "its cut lies before the head"
    if not record.cut:
        unknown = "it has not told a position yet"
    return Subscriber(
        name=record.subscriber, updated_ms=record.updated_ms or None, behind_bytes=behind, unknown=unknown
    )


def _unknown(seen: SegmentsSeen, sizes: _Sizes) -> list[str]:
    reasons = [seen.unknown] if seen.unknown else []
    if sizes.was_too_long:
        reasons.append(f"Sizes are added up over {columns_max} epochs at most: this stream has more behind its head.")
    return reasons


def _cut(cut: SegmentOffsets) -> Cut:
    positions = [CutPosition(id=segment_label(key), offset=offset) for key, offset in sorted(cut.items())]
    return Cut(segments=len(cut), positions=positions[:positions_max])
