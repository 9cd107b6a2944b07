"""Tells what is on record about one stream: configuration, head and tail, size."""

from __future__ import annotations

from typing import Final

from controller_service.lag.distance import Distances, epochs_max
from controller_service.store.records import RETENTION_SET, TRANSITION, TRUNCATION
from controller_service.window.answers import Cut, CutPosition, StreamDescription, StreamPicture
from controller_service.window.looks import SegmentsSeen, segments_of
from controller_service.window.parts import WindowParts
from controller_service.window.picture import picture_of, read_picture, segment_label
from controller_service.window.policies import retention_in_words, scaling_in_words
from pravega_common.model.segments import SegmentOffsets

positions_max: Final = 50
"""Positions of a cut that an answer lists."""


async def picture(parts: WindowParts, scope: str, stream: str, first: int | None, last: int | None) -> StreamPicture:
    """``StreamNotFound``; ``InvalidArgument`` for epochs that the stream does not have."""
    context = await parts.store.open(scope, stream, TRUNCATION)
    records = await read_picture(context, first, last)
    seen = await segments_of(parts, scope, stream, await context.current_epoch())
    return await picture_of(context, records, seen.infos, seen.unknown)


async def facts(parts: WindowParts, scope: str, stream: str) -> StreamDescription:
    """``StreamNotFound``."""
    context = await parts.store.open(scope, stream, TRUNCATION, TRANSITION, RETENTION_SET)
    state, configuration = await context.state_record(), (await context.configuration()).configuration
    current, oldest = await context.current_epoch(), (await context.history()).oldest_epoch
    transition, head = await context.transition(), (await context.truncation()).cut
    cuts = await context.read(RETENTION_SET)
    references = cuts.references if cuts else ()
    seen = await segments_of(parts, scope, stream, current)
    tail = None if seen.unknown else {key: info.length for key, info in seen.infos.items()}
    sizes = Distances(context, tail)
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
        unknown=_unknown(seen, sizes),
    )


def _unknown(seen: SegmentsSeen, sizes: Distances) -> list[str]:
    reasons = [seen.unknown] if seen.unknown else []
    if sizes.was_too_long:
        reasons.append(f"Sizes are added up over {epochs_max} epochs at most: this stream has more behind its head.")
    return reasons


def _cut(cut: SegmentOffsets) -> Cut:
    positions = [CutPosition(id=segment_label(key), offset=offset) for key, offset in sorted(cut.items())]
    return Cut(segments=len(cut), positions=positions[:positions_max])
