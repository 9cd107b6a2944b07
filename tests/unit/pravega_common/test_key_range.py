"""Checks key ranges."""

from __future__ import annotations

import pytest

from pravega_common.errors import InvalidArgument
from pravega_common.key_range import WHOLE_KEY_SPACE, KeyRange, cover_same, covers_whole, merge_adjoining


def test_split_and_merge() -> None:
    for count in (1, 2, 3, 7, 49):
        parts = WHOLE_KEY_SPACE.split(count)
        assert len(parts) == count
        assert covers_whole(parts)
        assert merge_adjoining(reversed(parts)) == (WHOLE_KEY_SPACE,)


def test_half_open() -> None:
    half = KeyRange(0.0, 0.5)
    assert half.contains(0.0)
    assert not half.contains(0.5)
    assert not half.overlaps(KeyRange(0.5, 1.0))
    assert half.overlaps(KeyRange(0.25, 0.75))


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 1.0)])
def test_bad_ranges(low: float, high: float) -> None:
    with pytest.raises(InvalidArgument):
        KeyRange(low, high)


def test_overlaps_and_gaps_are_found() -> None:
    with pytest.raises(InvalidArgument, match="overlap"):
        merge_adjoining([KeyRange(0.0, 0.6), KeyRange(0.5, 1.0)])
    assert not covers_whole([KeyRange(0.0, 0.4), KeyRange(0.5, 1.0)])
    assert not cover_same([KeyRange(0.0, 0.5)], [KeyRange(0.0, 0.4)])
