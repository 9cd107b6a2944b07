"""Computes how epochs follow each other, as pure functions over epoch records.

See docs/controller-api.md 3.2, 3.5, 3.10.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from controller_service.errors import PreconditionFailed
from controller_service.store.records import EpochRecord, EpochTransitionRecord, SegmentRecord
from pravega_common.errors import InvalidArgument
from pravega_common.names import segment_number_max, segments_per_stream_max

Range = tuple[float, float]
"""Lower edge, and upper edge that is not part of it."""


def equal_ranges(count: int) -> list[Range]:
    """``count`` ranges of equal width over the key space; the last ends at exactly 1.0, which clients insist on."""
    width = 1.0 / count
    edges = [index * width for index in range(count)] + [1.0]
    return list(pairwise(edges))


def initial_epoch(first_number: int, count: int, now_ms: int) -> EpochRecord:
    """Epoch 0 of a new stream."""
    if not 1 <= count <= segments_per_stream_max:
        raise InvalidArgument(f"a stream of {count} segments: the number must be in 1..{segments_per_stream_max}")
    return EpochRecord(0, 0, equal_segments(first_number, count, now_ms), now_ms)


def equal_segments(first_number: int, count: int, now_ms: int) -> tuple[SegmentRecord, ...]:
    """Segments of epoch 0 that share the key space equally: those of a stream, or of a key-value table."""
    return tuple(
        SegmentRecord(first_number + index, 0, now_ms, low, high)
        for index, (low, high) in enumerate(equal_ranges(count))
    )


def last_number(epoch: EpochRecord) -> int:
    """The highest segment number that the stream has used up to this epoch."""
    return max(segment.number for segment in epoch.segments)


def plan_scale(
    current: EpochRecord,
    to_seal: Sequence[int],
    ranges: Sequence[Range],
    min_segments: int,
    now_ms: int,
    request_id: str = "",
) -> EpochTransitionRecord:
    """The transition that replaces the segments ``to_seal`` by new ones with the given ranges.

    ``PreconditionFailed`` if a segment is not in the current epoch, or fewer than ``min_segments`` would be left;
    ``InvalidArgument`` if the new ranges are not exactly the key space of the sealed ones.
    """
    replaced = []
    by_id = {segment.segment_id: segment for segment in current.segments}
    for identifier in to_seal:
        segment = by_id.get(identifier)
        if segment is None:
            raise PreconditionFailed(f"segment {identifier} is not in the current epoch {current.epoch}")
        replaced.append(segment)
    new = [_checked_range(low, high) for low, high in ranges]
    if not new or _merged(new) != _merged([(segment.key_start, segment.key_end) for segment in replaced]):
        raise InvalidArgument(f"new key ranges {new} do not cover exactly those of the segments {list(to_seal)}")
    count = len(current.segments) - len(replaced) + len(new)
    if count < min_segments:
        raise PreconditionFailed(f"{count} segments would be left, the policy's minimum is {min_segments}")
    first = last_number(current) + 1
    if first + len(new) > segment_number_max:
        raise PreconditionFailed(f"segment numbers {first} and on: the last one possible is {segment_number_max}")
    # Former versions allowed more segments: a stream that has them may shrink.
    if count > segments_per_stream_max and count >= len(current.segments):
        raise PreconditionFailed(f"{count} segments: at most {segments_per_stream_max} are possible")
    return _transition(current, tuple(to_seal), new, now_ms, request_id)


def _transition(
    current: EpochRecord, to_seal: tuple[int, ...], new: Sequence[Range], now_ms: int, request_id: str
) -> EpochTransitionRecord:
    epoch, first = current.epoch + 1, last_number(current) + 1
    created_ms = max(now_ms, current.created_ms + 1)
    segments = tuple(SegmentRecord(first + i, epoch, created_ms, low, high) for i, (low, high) in enumerate(new))
    return EpochTransitionRecord(current.epoch, epoch, to_seal, segments, created_ms, True, request_id)


def rebase(transition: EpochTransitionRecord, planned_on: EpochRecord, current: EpochRecord) -> EpochTransitionRecord:
    """The same scale after a rolling commit put a duplicate in place of the epoch it was planned on.

    ``PreconditionFailed`` if the current epoch is not such a duplicate.
    """
    if current.reference_epoch != planned_on.reference_epoch:
        raise PreconditionFailed(f"epoch {planned_on.epoch} was replaced by epoch {current.epoch}")
    planned = frozenset(transition.segments_to_seal)
    numbers = {segment.number for segment in planned_on.segments if segment.segment_id in planned}
    to_seal = tuple(segment.segment_id for segment in current.segments if segment.number in numbers)
    ranges = [(segment.key_start, segment.key_end) for segment in transition.new_segments]
    return _transition(current, to_seal, ranges, transition.requested_ms, transition.request_id)


def _checked_range(low: float, high: float) -> Range:
    if not 0.0 <= low < high <= 1.0:
        raise InvalidArgument(f"key range [{low}, {high}) must satisfy 0 <= low < high <= 1")
    return low, high


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Adjoining ranges joined; compared exactly, as clients compute new edges from the ones they were given."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low < merged[-1][1]:
            raise InvalidArgument(f"key ranges overlap at {low}")
        if merged and low == merged[-1][1]:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


def next_epoch(current: EpochRecord, transition: EpochTransitionRecord) -> EpochRecord:
    """The epoch that a transition leads to."""
    to_seal = frozenset(transition.segments_to_seal)
    sealed = [segment for segment in current.segments if segment.segment_id in to_seal]
    kept = [segment for segment in current.segments if segment.segment_id not in to_seal]
    new = transition.new_segments
    splits, merges = _count_overlapping_several(sealed, new), _count_overlapping_several(new, sealed)
    return EpochRecord(
        transition.new_epoch,
        transition.new_epoch,
        tuple(sorted((*kept, *new), key=lambda segment: segment.key_start)),
        max(transition.requested_ms, current.created_ms + 1),
        current.splits + splits,
        current.merges + merges,
    )


def _count_overlapping_several(segments: Sequence[SegmentRecord], others: Sequence[SegmentRecord]) -> int:
    """The number of segments that overlap more than one of the others, which do not overlap each other."""
    in_order = sorted(others, key=lambda segment: segment.key_start)
    starts = [segment.key_start for segment in in_order]
    ends = [segment.key_end for segment in in_order]
    return sum(bisect_left(starts, item.key_end) - bisect_right(ends, item.key_start) > 1 for item in segments)


def duplicate_epoch(original: EpochRecord, epoch: int, now_ms: int, counts_from: EpochRecord) -> EpochRecord:
    """A copy of an epoch with new segments of the same numbers and ranges (rolling commit, 4.5)."""
    segments = tuple(
        SegmentRecord(segment.number, epoch, now_ms, segment.key_start, segment.key_end)
        for segment in original.segments
    )
    return EpochRecord(epoch, original.reference_epoch, segments, now_ms, counts_from.splits, counts_from.merges)


def successors(
    segment: SegmentRecord, replaced_in: EpochRecord, before: EpochRecord
) -> list[tuple[SegmentRecord, tuple[int, ...]]]:
    """The successors of a segment, each with all the segments that must be read to their ends before it.

    ``replaced_in`` is the first epoch without the segment and ``before`` the epoch in front of it.
    """
    return [
        (successor, tuple(previous.segment_id for previous in before.overlapping(successor)))
        for successor in replaced_in.overlapping(segment)
    ]
