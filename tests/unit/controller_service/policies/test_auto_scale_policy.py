"""Parts of hot segments, groups of cold ones, and the marks that are kept."""

from __future__ import annotations

import pytest

from controller_service.policies.auto_scale import cold_group, parts_of, splits_of, with_mark, without_marks
from controller_service.store.epochs import equal_ranges, initial_epoch, plan_scale
from controller_service.store.records import ColdMark, ColdSegmentsRecord
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.names import segments_per_stream_max

NOW_MS = 1_000_000
LIVE = ColdMark(NOW_MS - 10, NOW_MS + 10)
OVER = ColdMark(NOW_MS - 20, NOW_MS)
SILENT = ColdMark(5)
FOUR = initial_epoch(0, 4, 0)


def by_rate(factor: int) -> ScalingPolicy:
    return ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, factor, 1)


@pytest.mark.parametrize(
    ("factor", "reported", "parts"), [(0, 2, 2), (0, 9, 2), (4, 3, 3), (4, 9, 4), (4, 0, 2), (2**31 - 1, 2**30, 4_499)]
)
def test_a_hot_segment_has_two_parts_or_more_and_not_more_than_the_factor(
    factor: int, reported: int, parts: int
) -> None:
    assert splits_of(by_rate(factor), reported, 2) == parts


def test_a_stream_with_all_its_segments_is_not_split() -> None:
    assert splits_of(by_rate(4), 4, segments_per_stream_max - 1) == 2
    assert splits_of(by_rate(4), 4, segments_per_stream_max) == 0


@pytest.mark.parametrize("segments", [1, 3, 7])
@pytest.mark.parametrize("count", [2, 3, 7, 10, 49])
def test_parts_are_accepted_as_a_scale(segments: int, count: int) -> None:
    epoch = initial_epoch(0, segments, 0)
    for segment in epoch.segments:
        parts = parts_of(segment, count)
        plan = plan_scale(epoch, [segment.segment_id], parts, 1, 1)
        assert len(plan.new_segments) == count
        widths = [high - low for low, high in parts]
        assert max(widths) == pytest.approx(min(widths))


def test_parts_of_the_whole_key_space_are_those_of_a_new_stream() -> None:
    (whole,) = initial_epoch(0, 1, 0).segments
    assert parts_of(whole, 4) == equal_ranges(4)


@pytest.mark.parametrize(
    ("cold", "segment", "minimum", "merged"),
    [
        ((0,), 0, 1, ()),
        ((0, 1), 0, 1, (0, 1)),
        ((0, 1), 1, 1, (0, 1)),
        ((0, 2), 0, 1, ()),
        ((0, 1, 2), 1, 1, (0, 1, 2)),
        ((0, 1, 2, 3), 1, 1, (0, 1, 2)),
        ((0, 1, 2), 1, 3, (0, 1)),
        ((1, 2), 1, 3, (1, 2)),
        ((2, 3), 3, 3, (2, 3)),
        ((0, 1, 2), 1, 4, ()),
        ((0, 1, 2), 1, 5, ()),
        ((0, 2), 1, 1, ()),
    ],
)
def test_a_cold_segment_is_merged_with_its_cold_neighbours(
    cold: tuple[int, ...], segment: int, minimum: int, merged: tuple[int, ...]
) -> None:
    marks = dict.fromkeys(cold, LIVE)
    group = cold_group(FOUR, segment, marks, minimum, NOW_MS)
    assert tuple(found.segment_id for found in group) == merged


def test_marks_end_and_silent_ones_do_not() -> None:
    assert cold_group(FOUR, 1, {0: OVER, 1: LIVE}, 1, NOW_MS) == ()
    assert len(cold_group(FOUR, 1, {0: SILENT, 1: LIVE}, 1, NOW_MS)) == 2


def test_marks_of_segments_that_are_gone_or_over_are_not_kept() -> None:
    record = ColdSegmentsRecord({0: LIVE, 1: OVER, 2: SILENT, 99: SILENT})
    assert with_mark(record, FOUR, 3, ColdMark(NOW_MS, NOW_MS + 5), NOW_MS).marks == {
        0: LIVE,
        2: SILENT,
        3: ColdMark(NOW_MS, NOW_MS + 5),
    }
    assert without_marks(record, 0, 99).marks == {1: OVER, 2: SILENT}
