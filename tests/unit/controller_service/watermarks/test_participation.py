"""Which writers count for a watermark, and which are forgotten."""

from __future__ import annotations

import pytest

from controller_service.store.records import WriterMark
from controller_service.watermarks.participation import MarkFold
from controller_service.watermarks.watermark import SegmentPosition, Watermark

LAST = Watermark(100, 150, (SegmentPosition(0, 0.0, 1.0, 10),))
NOW_MS = 1_000_000


def mark(time: int, offset: int = 0, *, alive: bool = True, age_ms: int = 0, segment: int = 0) -> WriterMark:
    return WriterMark(time, {segment: offset}, alive, NOW_MS - age_ms)


def folded(*marks: WriterMark, last: Watermark | None = LAST, timeout_ms: int = 1_000) -> tuple[MarkFold, list[bool]]:
    fold = MarkFold(last, timeout_ms, NOW_MS)
    return fold, [fold.add(item) for item in marks]


def test_without_a_watermark_everybody_participates() -> None:
    fold, active = folded(mark(-(2**63)), mark(7, alive=False, age_ms=10**7), last=None)
    assert active == [True, True]
    assert fold.due == (-(2**63), 7)


def test_without_marks_nothing_is_due() -> None:
    fold, _ = folded()
    assert fold.is_empty and fold.due is None


def test_bounds_are_the_slowest_and_the_fastest_writer() -> None:
    fold, _ = folded(mark(120), mark(101), mark(300))
    assert fold.due == (101, 300)


@pytest.mark.parametrize("time", [100, 99])
def test_a_writer_that_is_behind_is_waited_for(time: int) -> None:
    fold, active = folded(mark(200), mark(time, age_ms=999))
    assert active == [True, True]
    assert not fold.is_empty and fold.due is None


def test_one_that_is_silent_for_the_timeout_is_not() -> None:
    fold, active = folded(mark(200, 5), mark(100, 50, age_ms=1_000))
    assert active == [True, False]
    assert fold.due == (200, 200) and fold.reached == {0: 5}


def test_one_whose_report_lies_a_day_ahead_is_not_and_is_not_forgotten_either() -> None:
    day_ms = 24 * 3_600_000
    fold, kept = folded(mark(200, 5), mark(100, 50, age_ms=-day_ms))
    assert kept == [True, True]
    assert fold.due == (200, 200) and fold.reached == {0: 5}
    assert folded(mark(200), mark(100, age_ms=1 - day_ms))[0].due is None


def test_one_that_said_goodbye_is_not() -> None:
    fold, active = folded(mark(200), mark(100, alive=False))
    assert active == [True, False] and fold.due == (200, 200)


def test_without_a_timeout_nobody_is_waited_for() -> None:
    fold, active = folded(mark(100), timeout_ms=0)
    assert active == [False] and fold.is_empty


def test_a_silent_writer_ahead_of_the_watermark_counts() -> None:
    """Its events up to that time are there; the watermark must lie behind them."""
    fold, active = folded(mark(101, 7, alive=False, age_ms=10**7), mark(500, 3))
    assert active == [True, True]
    assert fold.due == (101, 500) and fold.reached == {0: 7}


def test_positions_are_the_largest_of_each_segment_and_never_negative() -> None:
    fold, _ = folded(mark(200, 5), mark(201, 3), mark(202, -1, segment=4))
    assert fold.reached == {0: 5, 4: 0}


def test_after_a_day_every_mark_ends() -> None:
    """Also one that nothing can be made of, so that its stream costs nothing any more."""
    day_ms = 24 * 3_600_000
    _, active = folded(mark(500, age_ms=day_ms - 1), mark(500, age_ms=day_ms), last=None)
    assert active == [True, False]
    _, active = folded(mark(500, age_ms=day_ms), mark(500, age_ms=2 * day_ms), timeout_ms=2 * day_ms)
    assert active == [True, False]
