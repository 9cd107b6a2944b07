from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.store.epochs import initial_epoch, next_epoch, plan_scale
from controller_service.store.records import EpochRecord
from controller_service.store.stream_cuts import (
    CoveredKeys,
    CutPlacement,
    PlacedCut,
    SegmentsBefore,
    SegmentsBetween,
    epoch_bounds,
    is_at_or_after,
    is_valid,
)
from pravega_common.errors import InvalidArgument


def history() -> list[EpochRecord]:
    """0 and 1; then 0 is split into 2 and 3; then 3 and 1 become 4."""
    first = initial_epoch(0, 2, 0)
    second = next_epoch(first, plan_scale(first, [0], [(0.0, 0.25), (0.25, 0.5)], 1, 10))
    third = next_epoch(second, plan_scale(second, [S3, S1], [(0.25, 1.0)], 1, 20))
    return [first, second, third]


S0, S1 = 0, 1
S2, S3 = 1 << 32 | 2, 1 << 32 | 3
S4 = 2 << 32 | 4


def placed(cut: Mapping[int, int]) -> PlacedCut:
    low, high = epoch_bounds(cut)
    placement = CutPlacement(cut)
    for epoch in reversed(history()[low : high + 1]):
        placement.look_at(epoch)
    return placement.placed()


@pytest.mark.parametrize(
    ("cut", "valid"),
    [
        ({S0: 1, S1: 2}, True),
        ({S2: 0, S3: 0, S1: 5}, True),
        ({S2: 0, S4: 0}, True),
        ({S0: 1}, False),
        ({S0: 1, S2: 0, S1: 0}, False),
        ({S0: 1, S4: 0}, False),
        ({S1: 1, S2: -1, S3: -1}, True),
        ({S0: 1, S1: -1}, True),
        ({S4: 3, S3: -1, S2: 0}, False),
        ({S0: 9, S1: 9, S2: -1}, True),
    ],
)
def test_validity(cut: dict[int, int], valid: bool) -> None:
    assert is_valid(placed(cut)) is valid


def test_a_segment_of_another_stream_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        placed({S0: 0, 77: 0})
    with pytest.raises(InvalidArgument):
        epoch_bounds({})


@pytest.mark.parametrize(
    ("new", "old", "after"),
    [
        ({S0: 5, S1: 5}, {S0: 5, S1: 5}, True),
        ({S0: 6, S1: 5}, {S0: 5, S1: 5}, True),
        ({S0: 4, S1: 5}, {S0: 5, S1: 5}, False),
        ({S2: 0, S3: 0, S1: 5}, {S0: 5, S1: 5}, True),
        ({S0: 5, S1: 5}, {S2: 0, S3: 0, S1: 5}, False),
        ({S2: 0, S4: 0}, {S2: 0, S3: 9, S1: 5}, True),
        ({S2: 0, S3: 5, S4: -1}, {S2: 0, S3: 5, S4: -1}, True),
        ({S2: 0, S3: 6, S4: -1}, {S2: 0, S3: 5, S4: -1}, True),
        ({S2: 0, S4: 0}, {S2: 0, S3: 5, S4: -1}, True),
        ({S2: 0, S3: 5, S4: -1}, {S2: 0, S3: 5, S1: 9}, True),
        ({S2: 0, S3: 5, S4: -1}, {S2: 0, S4: 0}, False),
        ({S2: 0, S3: 5, S1: 9}, {S2: 0, S3: 5, S4: -1}, False),
        ({S1: 5, S2: 0, S4: -1}, {S1: 5, S2: -1, S3: -1}, True),
    ],
)
def test_order(new: dict[int, int], old: dict[int, int], after: bool) -> None:
    assert is_at_or_after(placed(new), placed(old)) is after


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({S0: 1, S1: 1}, None, set()),
        ({S2: 1, S3: 1, S1: 1}, None, {S0}),
        ({S2: 0, S4: 0}, None, {S0, S1, S3}),
        ({S2: 0, S4: 0}, {S2: 0, S3: 1, S1: 1}, {S1, S3}),
        ({S0: 1, S1: 1, S2: -1}, None, set()),
    ],
)
def test_what_lies_before_a_cut(new: dict[int, int], old: dict[int, int] | None, expected: set[int]) -> None:
    walk = SegmentsBefore(placed(new), placed(old) if old else None)
    before = [segment.segment_id for epoch in history() for segment in walk.new_in(epoch)]
    assert sorted(before) == sorted(expected)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({S0: 0, S1: 0}, {S0: 5, S1: 5}, [S0, S1]),
        ({S0: 0, S1: 0}, {S2: 1, S4: 1}, [S0, S1, S2, S3, S4]),
        ({S2: 0, S3: 0, S1: 0}, {S2: 1, S4: 1}, [S1, S2, S3, S4]),
        ({S0: 0, S1: 0}, {S2: 0, S3: 0, S1: 1}, [S0, S1, S2, S3]),
        ({S2: 0, S3: 5, S4: -1}, {S2: 1, S4: 1}, [S2, S3, S4]),
        ({S0: 3, S4: -1}, {S2: 1, S4: 1}, [S0, S2, S3, S4]),
    ],
)
def test_what_lies_between_two_cuts(first: dict[int, int], last: dict[int, int], expected: Sequence[int]) -> None:
    walk = SegmentsBetween(placed(first), placed(last))
    between = [segment.segment_id for epoch in history() for segment in walk.new_in(epoch)]
    assert sorted(between) == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=25))
def test_covered_keys_are_those_of_all_ranges(ranges: list[tuple[int, int]]) -> None:
    """Against the set of single keys."""
    covered, keys = CoveredKeys(), set[int]()
    for low, length in ranges:
        asked = set(range(low, low + length))
        assert covered.overlap(low, low + length) == bool(asked & keys)
        assert covered.cover(low, low + length) == (asked <= keys)
        covered.add(low, low + length)
        keys |= asked
