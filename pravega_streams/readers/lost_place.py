"""Finds where a group goes on in a stream of which nothing is on record any more that could follow its positions.

A controller forgets the epochs before a stream's head. Which keys a forgotten segment had nobody can tell, so the group
is placed by what follows the head: a segment of the head is read if the group holds, or has ended, something behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, Unavailable
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import offsets_by_name, parse_segment_name, segment_name
from pravega_streams.readers.cluster import StreamMetadata
from pravega_streams.readers.group_state import GroupState, Positions, StreamName

walked_max: Final = 10_000
"""Segments between a stream's head and a group that are asked for; with more the group must be reset."""


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Names what a group holds of one stream, by segment id."""

    held: frozenset[int]
    future: Mapping[int, frozenset[int]]
    ended: frozenset[int]

    @property
    def last(self) -> int:
        """The largest id: nothing with a larger one is behind the group's start and before its place."""
        return max((*self.held, *self.future, *self.ended), default=-1)


@dataclass(frozen=True, slots=True)
class NewPlace:
    """Tells how a group goes on: from ``before``, without the segments ``gone``, and with those of ``starts``."""

    stream: StreamName
    before: StreamPlace
    gone: frozenset[str]
    starts: Positions = field(default_factory=dict)


def place_in(state: GroupState, stream: StreamName) -> StreamPlace:
    """The place of a group in one of its streams."""

    def number_of(segment: str) -> int | None:
        name = parse_segment_name(segment)
        return name.segment_id if (name.scope, name.stream) == stream else None

    held = {number_of(segment) for segment, _ in state.held_segments()}
    future = {
        number: waiting for segment, waiting in state.future.items() if (number := number_of(segment)) is not None
    }
    ended = {number_of(segment) for segment in state.ended}
    return StreamPlace(frozenset(held - {None}), future, frozenset(ended - {None}))  # type: ignore[arg-type]


async def find_place(metadata: StreamMetadata, state: GroupState, stream: StreamName) -> NewPlace:
    """Return where a group goes on in a stream; nowhere in one that is deleted.

    ``Unavailable`` if the stream is truncated meanwhile; ``InvalidArgument`` beyond ``walked_max``.
    """
    before = place_in(state, stream)
    every = before.held | before.future.keys()
    try:
        head = await metadata.head_cut(*stream)
    except NotFound:
        return NewPlace(stream, before, _names(stream, every))
    following = await _following(metadata, stream, head, before)
    there = head.keys() | {number for found in following.values() for number in found}
    unread = head.keys() - before.held - before.ended - _read(following, before)
    end = state.config.end.get(stream)
    within = await _before_end(metadata, stream, head, end)
    starts = {number: min(head[number], (end or head).get(number, head[number])) for number in unread & within}
    return NewPlace(stream, before, _names(stream, every - there), offsets_by_name(*stream, starts))


def _names(stream: StreamName, numbers: frozenset[int]) -> frozenset[str]:
    return frozenset(segment_name(*stream, number) for number in numbers)


async def _following(
    metadata: StreamMetadata, stream: StreamName, head: SegmentOffsets, place: StreamPlace
) -> dict[int, list[int]]:
    """The successors of the segments from the head to the group's place, each with a larger id than its segment's."""
    known = place.held | place.future.keys() | place.ended
    left = [number for number in head if number not in known]
    following: dict[int, list[int]] = {}
    while left:
        if (number := left.pop()) in following or number >= place.last:
            continue
        if len(following) >= walked_max:
            raise InvalidArgument(f"stream {'/'.join(stream)} was truncated; reset the group, which is too far behind")
        try:
            found = await metadata.successors(*stream, number)
        except NotFound as error:
            raise Unavailable(f"stream {'/'.join(stream)} was truncated meanwhile: {error}") from error
        following[number] = [item.segment.segment_id for item in found]
        left += (item for item in following[number] if item not in known)
    return following


def _read(following: Mapping[int, list[int]], place: StreamPlace) -> set[int]:
    """The segments of which the group has, or had, a successor."""
    read: set[int] = set()
    for number in sorted(following, reverse=True):
        if any(
            item in place.held or item in place.ended or item in read or number not in place.future.get(item, {number})
            for item in following[number]
        ):
            read.add(number)
    return read


async def _before_end(
    metadata: StreamMetadata, stream: StreamName, head: SegmentOffsets, end: SegmentOffsets | None
) -> set[int]:
    """The segments of the head that a group reads which ends at ``end``: of a head behind it, those that both have."""
    if end is None:
        return set(head)
    try:
        return {*await metadata.segments_between(*stream, head, end)}
    except InvalidArgument:
        return head.keys() & end.keys()
