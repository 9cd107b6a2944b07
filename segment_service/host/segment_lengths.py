"""Looks up how long many segments are, for one reply (docs/wire-protocol.md 3.9).

A commit over 1,000 segments measures each of them and of its transactions' segments before it merges any. What is in
memory costs a microsecond or two; only for what has to be looked up there are tasks, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pravega_common.errors import InvalidArgument, SegmentNotFound
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.wire.commands import NO_SEGMENT
from pravega_common.wire.versions import lengths_asked_max
from segment_service.contracts.segment_store import SegmentStore
from segment_service.host.request_checks import check_segment_name

look_ups_at_once_max: Final = 256
"""Segments of one request that are looked up in Tier 2 at a time."""


async def lengths_of(store: SegmentStore, segments: Sequence[str], clock: Clock) -> tuple[int, ...]:
    """The length of each segment in bytes, ``NO_SEGMENT`` for one that is missing.

    ``InvalidArgument`` for too many names, and for one that no segment can have; errors of the store as they are.
    """
    if len(segments) > lengths_asked_max:
        raise InvalidArgument(f"{len(segments)} segments in one question; the limit is {lengths_asked_max}")
    lengths: list[int] = []
    unknown: list[int] = []
    slices = TimeSlices(clock, steps_per_reading=look_ups_at_once_max)
    for place, segment in enumerate(segments):
        check_segment_name(segment)
        length = _in_memory(store, segment)
        if length is None:
            unknown.append(place)
        lengths.append(NO_SEGMENT if length is None else length)
        await slices.step()
    for first in range(0, len(unknown), look_ups_at_once_max):
        places = unknown[first : first + look_ups_at_once_max]
        found = await all_ended(_looked_up(store, segments[place]) for place in places)
        for place, length in zip(places, found, strict=True):
            lengths[place] = length
    return tuple(lengths)


def _in_memory(store: SegmentStore, segment: str) -> int | None:
    """The length as far as it is known without waiting."""
    try:
        state = store.state_in_memory(segment)
    except SegmentNotFound:
        return NO_SEGMENT
    return None if state is None else state.length


async def _looked_up(store: SegmentStore, segment: str) -> int:
    try:
        return (await store.get_info(segment)).length
    except SegmentNotFound:
        return NO_SEGMENT
