"""Averages over four windows, and what they make of a segment."""

from __future__ import annotations

import math

import pytest

from segment_service.traffic.rates import TrafficRates
from segment_service.traffic.settings import TrafficSettings

TARGET = 100.0
TICK_S = 5.0


def ran(*phases: tuple[float, float], cooldown_s: float = 600.0) -> TrafficRates:
    """Rates after phases of (units a second, seconds)."""
    rates = TrafficRates(TrafficSettings(cooldown_s=cooldown_s))
    for rate, seconds in phases:
        for _ in range(int(seconds / TICK_S)):
            rates.add(rate * TICK_S, TICK_S)
    return rates


def test_a_steady_rate_is_the_average_of_all_windows() -> None:
    assert ran((70.0, 3_000.0)).rates == pytest.approx((70.0, 70.0, 70.0, 70.0))


def test_an_average_follows_a_step_as_an_exponential_of_its_window() -> None:
    rates = ran((100.0, 6_000.0), (0.0, 120.0)).rates
    assert rates == pytest.approx([100 * math.exp(-120 / window) for window in (120, 300, 600, 1_200)])


def test_a_young_average_is_the_plain_mean() -> None:
    assert ran((1_000.0, 5.0), (0.0, 95.0)).rates[0] == pytest.approx(50.0)


def test_ticks_of_other_lengths_give_the_same_average() -> None:
    short, long = TrafficRates(TrafficSettings()), TrafficRates(TrafficSettings())
    for _ in range(600):
        short.add(50.0, 1.0)
    for _ in range(60):
        long.add(500.0, 10.0)
    assert short.rates == pytest.approx(long.rates)
    for _ in range(60):
        short.add(0.0, 1.0)
    for _ in range(6):
        long.add(0.0, 10.0)
    assert short.rates == pytest.approx(long.rates)


@pytest.mark.parametrize(("rate", "splits"), [(90.0, 0), (150.0, 2), (250.0, 2), (420.0, 4), (5_000.0, 50)])
def test_splits_bring_each_part_to_the_target(rate: float, splits: int) -> None:
    assert ran((rate, 3_000.0)).splits(TARGET) == splits


def test_nothing_is_hot_before_the_cooldown_is_over() -> None:
    assert ran((10_000.0, 600.0)).splits(TARGET) == 0
    assert ran((10_000.0, 605.0)).splits(TARGET) == 100


@pytest.mark.parametrize(
    ("rate", "hot_after_s"),
    [(600.0, 120.0), (300.0, 300.0), (150.0, 600.0)],
    ids=["over five times the target", "over twice the target", "over the target"],
)
def test_the_further_above_the_target_the_sooner_it_is_hot(rate: float, hot_after_s: float) -> None:
    assert ran((rate, hot_after_s), cooldown_s=0.0).splits(TARGET) == 0
    assert ran((rate, hot_after_s + TICK_S), cooldown_s=0.0).splits(TARGET) > 0


def test_a_short_burst_makes_no_segment_hot() -> None:
    assert ran((50.0, 3_000.0), (400.0, 60.0)).splits(TARGET) == 0


def test_cold_is_below_the_target_lately_and_below_half_of_it_for_long() -> None:
    assert not ran((40.0, 1_200.0)).is_cold(TARGET)
    assert ran((40.0, 1_205.0)).is_cold(TARGET)
    assert not ran((60.0, 6_000.0)).is_cold(TARGET)
    assert not ran((40.0, 6_000.0), (120.0, 600.0)).is_cold(TARGET)
    assert not ran((200.0, 6_000.0), (0.0, 600.0)).is_cold(TARGET)
    assert ran((200.0, 6_000.0), (0.0, 1_800.0)).is_cold(TARGET)
