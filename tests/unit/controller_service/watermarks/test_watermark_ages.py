"""The ages of watermarks: a bounded table, in which the older ones stay."""

from __future__ import annotations

import pytest

from controller_service.watermarks import watermark_ages as module
from controller_service.watermarks.watermark_ages import NewestWatermark, WatermarkAges
from tests.support.fakes.clock import ManualClock

NOW_MS = 1_700_000_000_000


def written(seconds_ago: int, *, is_held: bool = False) -> NewestWatermark:
    return NewestWatermark(1, 2, NOW_MS - seconds_ago * 1000, is_held)


async def test_ages_go_on_between_runs_and_end_with_the_stream() -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    ages = WatermarkAges(clock, kept_s=30)
    ages.saw("s/a", written(5, is_held=True))
    ages.saw("s/b", written(9))
    await clock.advance(10)
    assert ages.ages() == [("s/a", 15.0, True), ("s/b", 19.0, False)]
    ages.forget("s/b")
    assert [one.stream for one in ages.ages()] == ["s/a"]


async def test_a_stream_of_another_controller_is_forgotten() -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    ages = WatermarkAges(clock, kept_s=30)
    ages.saw("s/a", written(5))
    await clock.advance(20)
    ages.saw("s/b", written(5))
    await clock.advance(20)
    assert [one.stream for one in ages.ages()] == ["s/b"]


def test_the_older_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "streams_max", 2)
    ages = WatermarkAges(ManualClock(wall_ms=NOW_MS), kept_s=30)
    for stream, seconds_ago in (("s/a", 5), ("s/b", 50), ("s/c", 20), ("s/d", 1)):
        ages.saw(stream, written(seconds_ago))
    assert {one.stream for one in ages.ages()} == {"s/b", "s/c"}
