"""Decides which segments a stream splits and merges by its traffic. Pure functions over records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from controller_service.store.epochs import Range
from controller_service.store.records import ColdMark, ColdSegmentsRecord, EpochRecord, SegmentRecord
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScaleType, ScalingPolicy, scale_factor_min, scaling_number_max
from pravega_common.names import segments_per_stream_max


@dataclass(frozen=True, slots=True)
class AutoScaleLimits:
    """The times of automatic scaling, in ms; the defaults are Pravega's."""

    report_valid_ms: int = 600_000
    """A report that is older changes nothing, and a segment that was reported as cold counts as cold for this long."""
    cooldown_ms: int = 600_000
    """A segment that is younger is neither split nor merged."""


def check_policy(policy: ScalingPolicy) -> None:
    """``InvalidArgument`` for a policy by rate without a rate, by which no stream scales, or without a factor.

    Pravega's clients make none, so it is checked where one is given; streams that have one already keep it.
    """
    if policy.scale_type is ScaleType.FIXED:
        return
    for name, value in (("target rate", policy.target_rate), ("scale factor", policy.scale_factor)):
        if value < 1:
            raise InvalidArgument(
                f"the scaling policy's {name}: {value} is not possible, must be in 1..{scaling_number_max} for a "
                "stream that scales by its rate"
            )


def splits_of(policy: ScalingPolicy, reported: int, segments: int) -> int:
    """The number of parts of a hot segment of a stream that has ``segments``; 0 if the stream can have no more.

    Not more than the policy's factor, and never fewer than two.
    """
    room = segments_per_stream_max - segments + 1
    splits = min(max(reported, scale_factor_min), max(policy.scale_factor, scale_factor_min), room)
    return splits if splits >= scale_factor_min else 0


def parts_of(segment: SegmentRecord, count: int) -> list[Range]:
    """The segment's range in equal parts; their ends are exactly those of the segment."""
    width = (segment.key_end - segment.key_start) / count
    edges = [segment.key_start + width * index for index in range(count)] + [segment.key_end]
    return list(pairwise(edges))


def with_mark(
    record: ColdSegmentsRecord, epoch: EpochRecord, identifier: int, mark: ColdMark, now_ms: int
) -> ColdSegmentsRecord:
    """The marks with a new one, without those of segments that are not in the epoch and those that are over."""
    active = frozenset(epoch.segment_ids)
    kept = {key: found for key, found in record.marks.items() if key in active and not found.is_over(now_ms)}
    return ColdSegmentsRecord({**kept, identifier: mark})


def without_marks(record: ColdSegmentsRecord, *identifiers: int) -> ColdSegmentsRecord:
    """The marks without those of segments that are not cold any more."""
    return ColdSegmentsRecord({key: mark for key, mark in record.marks.items() if key not in identifiers})


def cold_group(
    epoch: EpochRecord, identifier: int, marks: Mapping[int, ColdMark], min_segments: int, now_ms: int
) -> tuple[SegmentRecord, ...]:
    """A cold segment and its cold neighbours, at most three, in the order of their ranges; empty if there is no pair.

    No more of them than the stream can spare: if that is one, and both neighbours are cold, the upper one stays.
    """
    spare = len(epoch.segments) - min_segments
    place = epoch.segment_ids.index(identifier)
    near = epoch.segments[max(place - 1, 0) : place + 2]
    cold = [segment for segment in near if _is_cold(segment.segment_id, marks, now_ms)]
    if not _is_cold(identifier, marks, now_ms) or len(cold) < 2 or spare < 1:
        return ()
    return tuple(cold[: spare + 1])


def _is_cold(identifier: int, marks: Mapping[int, ColdMark], now_ms: int) -> bool:
    mark = marks.get(identifier)
    return mark is not None and not mark.is_over(now_ms)
