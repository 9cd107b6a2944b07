"""Turns measurements into figures: percentiles, medians, shares of the ceilings and of Kafka, and the aims."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

Result = dict[str, Any]
"""One case of one side at one size: ``case``, ``side``, ``event_bytes``, ``events``, ``seconds`` of each run, …"""

CEILING_OF: Final = {
    "write": "api-sink",
    "stream-write": "api-sink",
    "read": "api-source",
    "stream-read": "api-source",
}
"""The source of the ceiling yields ``event`` alone: reads of the full schema have no ceiling of their own."""
AIMS: Final[Mapping[str, Mapping[int, float]]] = {
    "write": {100: 1.0, 1_000: 1.3, 10_000: 1.3},
    "stream-write": {100: 1.0, 1_000: 1.2, 10_000: 1.2},
    "read": {100: 2.0, 1_000: 2.5, 10_000: 2.0},
    "stream-read": {100: 2.0, 1_000: 2.0, 10_000: 1.6},
}
"""Times Kafka, by case and event size."""
commit_aim_ms: Final = 50.0
commit_aim_tasks: Final = 4
latency_aim: Final = 1.0
"""Times Kafka's median."""
idle_aim_percent: Final = 1.0
"""Of a core."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` % of the values do not exceed; values in ascending order."""
    if not ordered:
        raise ValueError("no percentile of nothing")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Median, 99th percentile and extremes."""
    ordered = sorted(values)
    return {
        "min": round(ordered[0], digits),
        "p50": round(percentile(ordered, 50), digits),
        "p90": round(percentile(ordered, 90), digits),
        "p99": round(percentile(ordered, 99), digits),
        "max": round(ordered[-1], digits),
    }


def rates(events: int, size_bytes: int, seconds: Sequence[float]) -> Result:
    """The rates of the median run."""
    median_s = statistics.median(seconds)
    return {
        "seconds": [round(value, 3) for value in seconds],
        "events_per_second": round(events / median_s),
        "megabytes_per_second": round(events * size_bytes / median_s / 1e6, 1),
    }


def medians(readings: Sequence[Mapping[str, float]], digits: int = 2) -> dict[str, float]:
    """The median of each name over all readings, without those that round to zero."""
    names = dict.fromkeys(name for reading in readings for name in reading)
    found = {name: statistics.median(reading.get(name, 0.0) for reading in readings) for name in names}
    return {name: round(value, digits) for name, value in found.items() if round(value, digits)}


def aim_of(case: str, size_bytes: int) -> float | None:
    """The multiple of Kafka's rate that a case is to reach."""
    return AIMS.get(case.removesuffix("-full"), {}).get(size_bytes)


def shares(results: Sequence[Result], redis_megabytes_per_second: float) -> list[Result]:
    """Each of our figures as a share of the ceilings and of Kafka in the same run."""
    by_key = {(item["side"], item["case"], item["event_bytes"]): item for item in results}
    table = []
    for ours in results:
        if ours["side"] != "ours":
            continue
        case, size_bytes = ours["case"], ours["event_bytes"]
        share: Result = {"case": case, "event_bytes": size_bytes}
        ceiling = by_key.get(("spark", CEILING_OF.get(case, ""), size_bytes))
        if ceiling:
            share["of_api"] = _ratio(ours, ceiling)
        share["of_redis"] = round(ours["megabytes_per_second"] / redis_megabytes_per_second, 3)
        kafka = by_key.get(("kafka", case, size_bytes))
        if kafka:
            share |= _of_kafka(ours, kafka)
        table.append(share)
    return table


def beside_ours(results: Sequence[Result]) -> list[Result]:
    """The rates of our other services (``ours-…``) as shares of those of our usual ones in the same run."""
    usual = {(item["case"], item["event_bytes"]): item for item in results if item["side"] == "ours"}
    return [
        {
            "case": item["case"],
            "side": item["side"],
            "event_bytes": item["event_bytes"],
            "of_ours": _ratio(item, usual[key]),
            "of_ours_runs": _run_ratios(item, usual[key]),
        }
        for item in results
        if item["side"].startswith("ours-") and (key := (item["case"], item["event_bytes"])) in usual
    ]


def _of_kafka(ours: Result, kafka: Result) -> Result:
    """Medians against medians, and each run against the one that followed it."""
    made: Result = {
        "of_kafka": _ratio(ours, kafka),
        "of_kafka_runs": _run_ratios(ours, kafka),
    }
    aim = aim_of(ours["case"], ours["event_bytes"])
    if aim is not None:
        made |= {"aim": aim, "met": made["of_kafka"] >= aim}
    return made


def _ratio(mine: Result, other: Result) -> float:
    ratio: float = statistics.median(other["seconds"]) / statistics.median(mine["seconds"])
    return round(ratio, 3)


def _run_ratios(mine: Result, other: Result) -> list[float]:
    return [round(their_s / my_s, 3) for my_s, their_s in zip(mine["seconds"], other["seconds"], strict=False)]


def per_unit(cpu_s: Mapping[str, float], events: int, size_bytes: int) -> Result:
    """CPU seconds per million events and per GB of events, by group and in all."""
    cpu_s = {**cpu_s, "all": sum(cpu_s.values())}
    millions, gigabytes = events / 1e6, events * size_bytes / 1e9
    return {
        "cpu_s_per_million_events": {name: round(value / millions, 2) for name, value in cpu_s.items()},
        "cpu_s_per_gigabyte": {name: round(value / gigabytes, 2) for name, value in cpu_s.items()},
    }
