from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_service.errors import PreconditionFailed
from controller_service.store.epochs import (
    duplicate_epoch,
    equal_ranges,
    initial_epoch,
    last_number,
    next_epoch,
    plan_scale,
    rebase,
    successors,
)
from controller_service.store.records import EpochRecord
from pravega_common.errors import InvalidArgument


def assert_covers(epoch: EpochRecord) -> None:
    edges = [epoch.segments[0].key_start]
    for segment in epoch.segments:
        assert segment.key_start == edges[-1]
        edges.append(segment.key_end)
    assert (edges[0], edges[-1]) == (0.0, 1.0)


@settings(deadline=None)
@given(st.integers(1, 1000))
def test_equal_ranges_end_at_exactly_one(count: int) -> None:
    ranges = equal_ranges(count)
    assert ranges[-1][1] == 1.0
    assert ranges[0][0] == 0.0
    # As real controllers compute every other edge.
    assert all(low == index * (1.0 / count) for index, (low, _) in enumerate(ranges))
    assert all(low < high for low, high in ranges)


def test_number_of_segments_is_bounded() -> None:
    for count in (0, -1, 10_001):
        with pytest.raises(InvalidArgument):
            initial_epoch(0, count, 0)


def test_split() -> None:
    epoch = initial_epoch(5, 2, 100)
    plan = plan_scale(epoch, [5], [(0.0, 0.25), (0.25, 0.5)], 1, 200)
    assert [segment.segment_id for segment in plan.new_segments] == [1 << 32 | 7, 1 << 32 | 8]
    following = next_epoch(epoch, plan)
    assert following.epoch == following.reference_epoch == 1
    assert (following.splits, following.merges) == (1, 0)
    assert_covers(following)
    first = epoch.segments[0]
    assert [(s.number, before) for s, before in successors(first, following, epoch)] == [(7, (5,)), (8, (5,))]


def test_merge() -> None:
    epoch = initial_epoch(0, 3, 100)
    plan = plan_scale(epoch, [2, 1], [(epoch.segments[1].key_start, 1.0)], 1, 0)
    following = next_epoch(epoch, plan)
    assert (following.splits, following.merges) == (0, 1)
    assert following.created_ms > epoch.created_ms
    [(successor, before)] = successors(epoch.segments[1], following, epoch)
    assert successor.number == 3
    assert set(before) == {1, 2}


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0.0, 0.4)],
        [(0.0, 0.6)],
        [(0.0, 0.3), (0.2, 0.5)],
        [(0.5, 0.0)],
        [(0.0, 0.2), (0.3, 0.5)],
        [(float("nan"), 0.5)],
    ],
)
def test_ranges_must_be_those_of_the_sealed_segments(ranges: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidArgument):
        plan_scale(initial_epoch(0, 2, 0), [0], ranges, 1, 0)


def test_preconditions() -> None:
    epoch = initial_epoch(0, 2, 0)
    with pytest.raises(PreconditionFailed):
        plan_scale(epoch, [7], [(0.0, 0.5)], 1, 0)
    with pytest.raises(PreconditionFailed):
        plan_scale(epoch, [0, 1], [(0.0, 1.0)], 2, 0)
    with pytest.raises(InvalidArgument):
        plan_scale(epoch, [0, 0], [(0.0, 0.5)], 1, 0)


def test_a_plan_follows_a_rolling_commit() -> None:
    epoch = initial_epoch(0, 2, 0)
    plan = plan_scale(epoch, [1], [(0.5, 0.75), (0.75, 1.0)], 1, 10, "request")
    duplicate = duplicate_epoch(epoch, 2, 50, epoch)
    moved = rebase(plan, epoch, duplicate)
    assert moved.segments_to_seal == (2 << 32 | 1,)
    assert moved.new_epoch == 3
    assert moved.request_id == "request"
    assert_covers(next_epoch(duplicate, moved))
    other = next_epoch(epoch, plan)
    with pytest.raises(PreconditionFailed):
        rebase(plan, epoch, other)


@settings(deadline=None)
@given(st.data())
def test_any_row_of_scales_keeps_the_key_space_covered(data: st.DataObject) -> None:
    epoch = initial_epoch(0, data.draw(st.integers(1, 8)), 0)
    for _ in range(data.draw(st.integers(1, 10))):
        start = data.draw(st.integers(0, len(epoch.segments) - 1))
        end = data.draw(st.integers(start, len(epoch.segments) - 1))
        replaced = epoch.segments[start : end + 1]
        low, high = replaced[0].key_start, replaced[-1].key_end
        cuts = data.draw(st.lists(st.floats(low, high), max_size=3))
        ranges = list(pairwise(sorted({low, *cuts, high})))
        numbers = last_number(epoch)
        plan = plan_scale(epoch, [segment.segment_id for segment in replaced], ranges, 1, 0)
        following = next_epoch(epoch, plan)
        assert_covers(following)
        assert min(segment.number for segment in plan.new_segments) == numbers + 1
        epoch = following


@settings(deadline=None)
@given(st.data())
def test_splits_and_merges_are_counted_as_defined(data: st.DataObject) -> None:
    epoch = initial_epoch(0, data.draw(st.integers(1, 12)), 0)
    low = data.draw(st.integers(0, len(epoch.segments) - 1))
    chosen = epoch.segments[low : data.draw(st.integers(low + 1, len(epoch.segments)))]
    edges = sorted(
        {chosen[0].key_start, chosen[-1].key_end}
        | data.draw(st.sets(st.sampled_from([segment.key_start for segment in chosen])))
        | {
            chosen[0].key_start + share * (chosen[-1].key_end - chosen[0].key_start)
            for share in data.draw(st.sets(st.floats(0.01, 0.99), max_size=5))
        }
    )
    plan = plan_scale(epoch, [segment.segment_id for segment in chosen], list(pairwise(edges)), 1, 5)
    following = next_epoch(epoch, plan)
    new = plan.new_segments
    assert following.splits == sum(sum(old.overlaps(segment) for segment in new) > 1 for old in chosen)
    assert following.merges == sum(sum(segment.overlaps(old) for old in chosen) > 1 for segment in new)
    assert_covers(following)
