"""Plans scale operations: the segments to seal and the key ranges to create. Pure rules over the open segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pravega_common.errors import InvalidArgument
from pravega_common.key_range import WHOLE_KEY_SPACE, KeyRange, merge_adjoining
from pravega_common.model.segments import SegmentRange
from pravega_common.names import EPOCH_DELIMITER, segment_number, segments_per_stream_max, short_segment_name


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """A planned scale. ``sealed``: ids of open segments; ``ranges`` cover the same keys."""

    sealed: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]


def plan_split(segments: Sequence[SegmentRange], text: str) -> ScalePlan:
    """Plans ``SEGMENT`` or ``SEGMENT:N``: replaces one segment by ``N`` (2) of equal width.

    A segment is named ``4.#epoch.2``, with or without its stream before it, or by its number or id.
    """
    identifier, colon, count = text.partition(":")
    parts = _number(count, f"--split {text}", 2, segments_per_stream_max) if colon else 2
    segment = _find(segments, identifier, f"--split {text}")
    return ScalePlan((segment.segment_id,), _pairs(segment.key_range.split(parts)))


def plan_merge(segments: Sequence[SegmentRange], text: str) -> ScalePlan:
    """Plans ``A,B[,C…]``: replaces neighbours by one segment."""
    chosen = [_find(segments, item, f"--merge {text}") for item in text.split(",")]
    if len({item.segment_id for item in chosen}) < max(2, len(chosen)):
        raise InvalidArgument(f"--merge {text} must name two or more different segments, as in --merge 0,1")
    merged = merge_adjoining(item.key_range for item in chosen)
    if len(merged) != 1:
        raise InvalidArgument(
            f"--merge {text}: these segments are no neighbours, their keys are "
            f"{', '.join(f'[{item.low:g}, {item.high:g})' for item in merged)}; see pravega-spark stream info"
        )
    return ScalePlan(tuple(item.segment_id for item in chosen), _pairs(merged))


def plan_segments(segments: Sequence[SegmentRange], count: int) -> ScalePlan:
    """Plans to replace all segments by ``count`` of equal width."""
    if not 1 <= count <= segments_per_stream_max:
        raise InvalidArgument(f"--segments {count} is not in 1..{segments_per_stream_max}")
    return ScalePlan(tuple(item.segment_id for item in segments), _pairs(WHOLE_KEY_SPACE.split(count)))


def _find(segments: Sequence[SegmentRange], text: str, option: str) -> SegmentRange:
    for item in segments:
        if text in (item.name, short_segment_name(item.segment_id)):
            return item
    wanted = None if EPOCH_DELIMITER in text else _number(text, option, 0, 2**63 - 1)
    for item in segments:
        # Numbers are never used twice in a stream, so one is as good as the whole name.
        if wanted in (item.segment_id, segment_number(item.segment_id)):
            return item
    known = ", ".join(short_segment_name(item.segment_id) for item in segments)
    raise InvalidArgument(f"{option}: the stream has no open segment {text}; it has {known or 'none, it is sealed'}")


def _number(text: str, option: str, low: int, high: int) -> int:
    if not text.strip().isdecimal() or not low <= int(text) <= high:
        raise InvalidArgument(f"{option}: '{text}' is no whole number in {low}..{high}")
    return int(text)


def _pairs(ranges: Sequence[KeyRange]) -> tuple[tuple[float, float], ...]:
    return tuple((item.low, item.high) for item in ranges)
