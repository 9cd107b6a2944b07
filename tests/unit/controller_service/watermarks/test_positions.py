"""Positions joined over splits, merges and gaps."""

from __future__ import annotations

import pytest

from controller_service.store.records import EpochRecord, SegmentRecord
from controller_service.watermarks.positions import fill, gaps, join
from controller_service.watermarks.watermark import SegmentPosition
from pravega_common.errors import DataCorruption
from pravega_common.names import segment_id


def at(number: int, epoch: int, low: float, high: float, offset: int) -> SegmentPosition:
    return SegmentPosition(segment_id(number, epoch), low, high, offset)


def epoch_of(number: int, *segments: tuple[int, int, float, float]) -> EpochRecord:
    records = tuple(SegmentRecord(n, created, 0, low, high) for n, created, low, high in segments)
    return EpochRecord(number, number, records, 0)


def test_the_largest_offset_of_a_segment_counts() -> None:
    assert join([at(0, 0, 0, 1, 5), at(0, 0, 0, 1, 9), at(0, 0, 0, 1, 7)]) == (at(0, 0, 0, 1, 9),)


def test_a_split_replaces_what_was_split() -> None:
    halves = at(1, 1, 0.0, 0.5, 3), at(2, 1, 0.5, 1.0, 0)
    assert join([at(0, 0, 0, 1, 1_000), *halves]) == halves
    assert join([*halves, at(0, 0, 0, 1, 1_000)]) == halves


def test_a_merge_replaces_what_was_merged() -> None:
    merged = at(2, 1, 0.0, 1.0, 1)
    assert join([at(0, 0, 0, 0.5, 9), merged, at(1, 0, 0.5, 1, 9)]) == (merged,)


def test_a_position_that_another_writer_passed_by_two_epochs_does_not_come_back() -> None:
    """Segment 1 replaced 0, segment 2 replaced a part of 1: what 0 held is passed also where 2 does not reach."""
    old, middle, new = at(0, 0, 0.0, 0.5, 9), at(1, 1, 0.25, 0.75, 9), at(2, 2, 0.5, 1.0, 1)
    for order in ([old, middle, new], [new, old, middle], [middle, new, old]):
        assert join(order) == (new,)


def test_gaps_are_filled_with_the_newest_segments() -> None:
    newest = epoch_of(1, (1, 1, 0.0, 0.25), (2, 1, 0.25, 0.5), (3, 1, 0.5, 1.0))
    position = join([at(2, 1, 0.25, 0.5, 7)])
    assert gaps(position) == [(0.0, 0.25), (0.5, 1.0)]
    assert fill(position, newest) == (at(1, 1, 0, 0.25, 0), at(2, 1, 0.25, 0.5, 7), at(3, 1, 0.5, 1, 0))


def test_a_filling_that_covers_more_than_the_gap_replaces_what_it_covers() -> None:
    """Segment 4 covers the gap and a part of the older 0, whose other part 5 follows."""
    newest = epoch_of(2, (4, 2, 0.25, 0.75), (5, 2, 0.0, 0.25), (6, 2, 0.75, 1.0))
    position = join([at(0, 0, 0.0, 0.5, 9), at(6, 2, 0.75, 1.0, 1)])
    assert fill(position, newest) == (at(5, 2, 0, 0.25, 0), at(4, 2, 0.25, 0.75, 0), at(6, 2, 0.75, 1, 1))


def test_nothing_is_filled_where_there_is_no_gap() -> None:
    whole = (at(0, 0, 0, 1, 4),)
    assert gaps(whole) == [] and fill(whole, epoch_of(0, (0, 0, 0.0, 1.0))) == whole


def test_an_epoch_that_leaves_a_gap_is_an_error() -> None:
    with pytest.raises(DataCorruption, match="another stream"):
        fill((at(1, 1, 0.5, 1.0, 3),), epoch_of(1, (1, 1, 0.5, 1.0)))


def test_a_position_of_another_stream_that_no_epoch_completes_is_an_error() -> None:
    """Segment 7 is newer than the only segment of the epoch and covers a part of it."""
    with pytest.raises(DataCorruption, match="another stream"):
        fill(join([at(7, 0, 0.0, 0.5, 0), at(0, 0, 0, 1, 9)]), epoch_of(0, (0, 0, 0.0, 1.0)))
