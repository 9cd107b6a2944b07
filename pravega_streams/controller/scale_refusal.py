"""Explains why a scale is refused: a controller answers a status alone (docs/controller-api.md 2.4).

It refuses also a scale that it has done, to which the answer was lost: what stands then tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_common.key_range import KeyRange, merge_adjoining
from pravega_common.listed import listed
from pravega_common.model.segments import SegmentRange
from pravega_common.names import segment_id, segment_number, segments_per_stream_max, short_segment_name
from pravega_streams.controller.call_numbers import checked_number

named_max: Final = 10
"""Segments and ranges that a message names."""


def lists_of_scale(
    sealed: Iterable[int], new_ranges: Iterable[tuple[float, float]]
) -> tuple[list[int], list[tuple[float, float]]]:
    """Returns the segments and the ranges; ``InvalidArgument`` for other values, and for what fits no stream."""
    try:
        segments, ranges = list(sealed), [(float(low), float(high)) for low, high in new_ranges]
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"a scale of {sealed!r} to {new_ranges!r}: a list of segments and one of ranges (low, high) are needed"
        ) from error
    segments = [checked_number("a segment to seal", item) for item in segments]
    checked_ranges(segments, ranges)
    return segments, ranges


def checked_ranges(sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]) -> tuple[KeyRange, ...]:
    """The new ranges in order, adjoining ones joined; ``InvalidArgument`` for a scale that fits no stream."""
    if not sealed or not new_ranges:
        raise InvalidArgument(
            f"a scale that seals {len(sealed)} segments and makes {len(new_ranges)}: each must be 1 or more"
        )
    if len(set(sealed)) < len(sealed):
        raise InvalidArgument(f"a scale that seals a segment twice: {_segments(sorted(sealed))}")
    return merge_adjoining((KeyRange(low, high) for low, high in new_ranges), 0.0)


def refusal_reason(
    sealed: Sequence[int],
    new_ranges: Sequence[tuple[float, float]],
    segments: Sequence[SegmentRange],
    min_segments: int,
) -> str:
    """Return the reason why these open segments do not admit the scale; checks in the order of controllers."""
    by_id = {item.segment_id: item for item in segments}
    gone = [item for item in sealed if item not in by_id]
    if gone:
        return f"not open: segment {_segments(gone)}; open: {_segments(by_id)}"
    wanted = checked_ranges(sealed, new_ranges)
    there = merge_adjoining((by_id[item].key_range for item in sealed), 0.0)
    if wanted != there:
        return f"the new ranges make up {_named(map(_keys, wanted))}, the segments to seal {_named(map(_keys, there))}"
    count = len(segments) - len(sealed) + len(new_ranges)
    if count < min_segments:
        return f"{count} segments would be left, the stream's policy is to have at least {min_segments}"
    if count > segments_per_stream_max:
        return f"{count} segments would be open, at most {segments_per_stream_max} may"
    return "its segments and its policy admit it now: another scale is in flight, or the stream changed meanwhile"


def made_by_scale(
    sealed: Sequence[int],
    new_ranges: Sequence[tuple[float, float]],
    before: Sequence[SegmentRange],
    after: Sequence[SegmentRange],
) -> list[SegmentRange]:
    """Return the segments of the very scale that led from one epoch to the next, by range; none if another one did."""
    old, new = ({item.segment_id: item for item in epoch} for epoch in (before, after))
    made = {(item.key_low, item.key_high): item for number, item in new.items() if number not in old}
    if set(sealed) != old.keys() - new.keys() or made.keys() != set(new_ranges):
        return []
    return [made[keys] for keys in new_ranges]


def as_planned(planned: Sequence[SegmentRange], there: Sequence[SegmentRange], epoch: int) -> list[SegmentRange]:
    """Return the segments of a plan as an epoch has them, in which they may have been made; none if they were not."""
    by_id = {item.segment_id: item for item in there}
    made = [by_id.get(segment_id(segment_number(item.segment_id), epoch)) for item in planned]
    keys = [(item.key_low, item.key_high) for item in planned]
    found = [item for item in made if item is not None]
    return found if [(item.key_low, item.key_high) for item in found] == keys else []


def _segments(ids: Iterable[int]) -> str:
    return _named(map(short_segment_name, ids))


def _keys(keys: KeyRange) -> str:
    """All digits: edges are compared exactly."""
    return f"[{keys.low!r}, {keys.high!r})"


def _named(texts: Iterable[str]) -> str:
    return listed(list(texts), named_max)
