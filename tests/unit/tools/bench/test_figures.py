"""Checks percentiles, rates, shares and aims."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.figures import aim_of, beside_ours, medians, per_unit, percentile, rates, shares, spread


def result(side: str, case: str, size_bytes: int, *seconds: float, events: int = 1_000_000) -> dict[str, Any]:
    return {
        "side": side,
        "case": case,
        "event_bytes": size_bytes,
        "events": events,
        **rates(events, size_bytes, seconds),
    }


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (1, 1.0), (50, 50.0), (50.1, 51.0), (99, 99.0), (99.5, 100.0), (100, 100.0)]
)
def test_a_percentile_is_a_value_that_was_seen(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], percent) == expected


def test_the_99th_percentile_of_few_values_is_the_worst() -> None:
    assert percentile([1.0, 2.0, 30.0], 99) == 30.0
    assert percentile([7.0], 50) == 7.0


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        percentile([], 50)


def test_a_spread_does_not_mind_the_order() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"min": 1.0, "p50": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0}


def test_rates_are_those_of_the_median_run() -> None:
    made = rates(1_000_000, 100, [4.0, 1.0, 2.0])
    assert made["events_per_second"] == 500_000
    assert made["megabytes_per_second"] == 50.0
    assert made["seconds"] == [4.0, 1.0, 2.0]


def test_medians_count_a_missing_reading_as_nothing() -> None:
    readings = [{"redis": 1.0, "jvm": 2.0}, {"redis": 3.0}, {"redis": 2.0, "minio": 9.0}]
    assert medians(readings) == {"redis": 2.0}


def test_our_figures_stand_beside_ceilings_and_kafka() -> None:
    results = [
        result("spark", "api-source", 100, 2.0),
        result("ours", "read", 100, 1.0, 2.0, 1.0),
        result("kafka", "read", 100, 3.0, 3.0, 2.0),
    ]
    (share,) = shares(results, 200.0)
    assert share["case"] == "read"
    assert share["of_api"] == 2.0
    assert share["of_redis"] == 0.5
    assert share["of_kafka"] == 3.0
    assert share["of_kafka_runs"] == [3.0, 1.5, 2.0]
    assert (share["aim"], share["met"]) == (2.0, True)


def test_our_other_services_stand_beside_the_usual_ones() -> None:
    results = [
        result("ours", "write", 100, 1.0, 1.5, 1.0),
        result("ours-three-redis", "write", 100, 2.0, 2.0, 2.5),
        result("kafka", "write", 100, 3.0),
        result("ours-three-redis", "read", 100, 2.0),
    ]
    (variant,) = beside_ours(results)
    assert (variant["case"], variant["side"], variant["event_bytes"]) == ("write", "ours-three-redis", 100)
    assert variant["of_ours"] == 0.5
    assert variant["of_ours_runs"] == [0.5, 0.75, 0.4]


def test_a_case_below_its_aim_is_told() -> None:
    results = [result("ours", "stream-write", 1_000, 2.0), result("kafka", "stream-write", 1_000, 1.9)]
    (share,) = shares(results, 100.0)
    assert share["of_kafka"] == 0.95
    assert share["met"] is False
    assert "of_api" not in share


def test_without_kafka_there_is_no_verdict() -> None:
    (share,) = shares([result("ours", "write", 100, 1.0)], 100.0)
    assert not {"of_kafka", "aim", "met"} & share.keys()


def test_sizes_are_not_mixed() -> None:
    results = [result("ours", "read", 100, 1.0), result("kafka", "read", 1_000, 1.0)]
    (share,) = shares(results, 100.0)
    assert "of_kafka" not in share


@pytest.mark.parametrize(
    ("case", "size_bytes", "aim"),
    [
        ("write", 100, 1.0),
        ("stream-write", 10_000, 1.2),
        ("read-full", 100, 2.0),
        ("stream-read-full", 10_000, 1.6),
        ("read", 1_000, 2.5),
        ("read", 5, None),
    ],
)
def test_aims(case: str, size_bytes: int, aim: float | None) -> None:
    assert aim_of(case, size_bytes) == aim


def test_cpu_is_told_per_million_events_and_per_gigabyte() -> None:
    made = per_unit({"redis": 1.0, "driver-jvm": 3.0}, 2_000_000, 1_000)
    assert made["cpu_s_per_million_events"] == {"redis": 0.5, "driver-jvm": 1.5, "all": 2.0}
    assert made["cpu_s_per_gigabyte"] == {"redis": 0.5, "driver-jvm": 1.5, "all": 2.0}
