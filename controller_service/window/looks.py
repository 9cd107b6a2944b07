"""Looks at the lengths of streams' open segments, from which the page makes rates.

A look costs one read of the stream's records and one request to each store for all segments together. What the stores
do not tell in time is left out and said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.store.records import EpochRecord, StreamState
from controller_service.window.answers import SegmentLength, StreamLook, StreamsLook
from controller_service.window.parts import WindowParts, look_time_max_s, within
from controller_service.window.picture import segment_label
from pravega_common.errors import NotFound, PravegaError
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import segments_per_stream_max
from pravega_common.runtime.joined import all_ended

streams_per_look_max: Final = 50
segments_per_look_max: Final = segments_per_stream_max
"""Segments that one look asks the stores about; streams that do not fit any more are left out."""


@dataclass(frozen=True)
class SegmentsSeen:
    """``unknown``: why a segment that was asked for is missing; None if none is."""

    infos: Mapping[int, SegmentInfo]
    unknown: str | None = None


@dataclass(frozen=True)
class _Known:
    scope: str
    stream: str
    state: StreamState
    epoch: EpochRecord


async def segments_of(parts: WindowParts, scope: str, stream: str, epoch: EpochRecord) -> SegmentsSeen:
    """The open segments of one stream."""
    infos, late = await _infos_of(parts, epoch.names(scope, stream))
    return _seen(infos, scope, stream, epoch, late)


async def segments_of_many(parts: WindowParts, streams: Sequence[tuple[str, str, EpochRecord]]) -> list[SegmentsSeen]:
    """The open segments of many streams, by scope and name, with one request to each store."""
    asked: set[int] = set()
    room = segments_per_look_max
    for index, (_, _, epoch) in enumerate(streams):
        if len(epoch.segments) <= room:
            room -= len(epoch.segments)
            asked.add(index)
    names = [name for index in sorted(asked) for name in streams[index][2].names(*streams[index][:2])]
    infos, late = await _infos_of(parts, names)
    not_asked = f"not asked: the streams of a page may have {segments_per_look_max} open segments together"
    return [
        _seen(infos, *stream, late) if index in asked else SegmentsSeen({}, not_asked)
        for index, stream in enumerate(streams)
    ]


async def _infos_of(parts: WindowParts, names: Sequence[str]) -> tuple[dict[str, SegmentInfo], str]:
    """Those of the segments that are there, and why none is known; empty if they were answered."""
    try:
        found = await within(look_time_max_s, parts.access.infos_found(names)) if names else []
    except PravegaError as error:
        return {}, str(error)
    return {name: info for name, info in zip(names, found, strict=True) if info is not None}, ""


def _seen(infos: Mapping[str, SegmentInfo], scope: str, stream: str, epoch: EpochRecord, late: str) -> SegmentsSeen:
    names = zip(epoch.segment_ids, epoch.names(scope, stream), strict=True)
    own = {key: infos[name] for key, name in names if name in infos}
    missing = len(epoch.segments) - len(own)
    return SegmentsSeen(own, (late or f"{missing} segments are not there") if missing else None)


async def look_at(parts: WindowParts, scope: str, stream: str) -> StreamLook:
    """One stream with each of its open segments; ``StreamNotFound``."""
    context = await parts.store.open(scope, stream)
    epoch, state = await context.current_epoch(), await context.state()
    seen = await segments_of(parts, scope, stream, epoch)
    lengths = [SegmentLength(id=segment_label(key), bytes=info.length) for key, info in seen.infos.items()]
    known = _Known(scope, stream, state, epoch)
    return _look(parts, known, None if seen.unknown else [one.bytes for one in lengths], lengths, seen.unknown)


async def look_at_many(parts: WindowParts, names: Sequence[tuple[str, str]]) -> StreamsLook:
    """Many streams, by scope and name, with one request to each store; those that are gone are left out."""
    found = [one for one in await all_ended(_known(parts, *name) for name in names) if one is not None]
    seen = await segments_of_many(parts, [(one.scope, one.stream, one.epoch) for one in found])
    return StreamsLook(
        streams=[
            _look(
                parts, known, None if own.unknown else [info.length for info in own.infos.values()], None, own.unknown
            )
            for known, own in zip(found, seen, strict=True)
        ]
    )


async def _known(parts: WindowParts, scope: str, stream: str) -> _Known | None:
    try:
        context = await parts.store.open(scope, stream)
        return _Known(scope, stream, await context.state(), await context.current_epoch())
    except NotFound:
        return None


def _look(
    parts: WindowParts,
    known: _Known,
    lengths: Sequence[int] | None,
    segments: list[SegmentLength] | None,
    unknown: str | None,
) -> StreamLook:
    return StreamLook(
        scope=known.scope,
        stream=known.stream,
        at_ms=parts.clock.wall_ms(),
        state=known.state.value,
        epoch=known.epoch.epoch,
        segment_count=len(known.epoch.segments),
        bytes=None if lengths is None else sum(lengths),
        segments=segments,
        unknown=unknown,
    )
