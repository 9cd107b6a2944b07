"""Sets results of two sides, or of two commits, beside each other: MB/s, and where a GB's CPU seconds go."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tests.bench.figures import Result, medians, rates
from tests.bench.tables import table

CASES: Final = ("write", "read", "stream-write", "stream-read")
FLOORS_S_PER_GB: Final = {"write": 4.5, "stream-write": 5.6, "read": 1.7, "stream-read": 1.7}
"""CPU seconds a GB from 1 KB on, if every byte were copied as seldom as this design allows: estimates."""


def comparison(results: Sequence[Result], mine: str, other: str) -> str:
    """Two tables: rates of both with their ratio, and CPU seconds a GB by process. ``side`` tells the two apart."""
    by_key = {(item["case"], item["event_bytes"], item["side"]): item for item in results}
    keys = [key for key in by_key if key[2] == mine]
    pairs = [(by_key[key], by_key.get((*key[:2], other))) for key in keys]
    return "\n".join([_rate_table(pairs, mine, other), _cpu_table(pairs)])


def _rate_table(pairs: Iterable[tuple[Result, Result | None]], mine: str, other: str) -> str:
    rows: list[Sequence[Any]] = []
    for ours, theirs in pairs:
        rows.append(
            (
                ours["case"],
                ours["event_bytes"],
                ours["megabytes_per_second"],
                theirs["megabytes_per_second"] if theirs else "",
                ratio(ours, theirs) if theirs else "",
                " ".join(map(str, run_ratios(ours, theirs))) if theirs else "",
                max(ours["other_cores"] + (theirs["other_cores"] if theirs else [])),
            )
        )
    head = (
        "case",
        "bytes",
        f"{mine}, MB/s",
        f"{other}, MB/s",
        "ratio",
        "of each run",
        "cores busy with something else",
    )
    return table(f"{mine} beside {other} (medians)", head, rows)


def ratio(ours: Result, theirs: Result) -> float:
    """How many times as fast ours is, by medians."""
    times: float = statistics.median(theirs["seconds"]) / statistics.median(ours["seconds"])
    return round(times, 2)


def run_ratios(ours: Result, theirs: Result) -> list[float]:
    """The same for each run and the one that was next to it."""
    return [round(slow / fast, 2) for fast, slow in zip(ours["seconds"], theirs["seconds"], strict=False)]


def cpu_per_gigabyte(item: Result) -> dict[str, float]:
    """CPU seconds of each group for a GB of events, and of all."""
    spent = {**item["cpu_seconds"], "all": sum(item["cpu_seconds"].values())}
    gigabytes = item["events"] * item["event_bytes"] / 1e9
    return {name: round(value / gigabytes, 2) for name, value in spent.items()}


def beside_kafka(what: str, results: Sequence[Result]) -> str:
    """Rates beside Kafka's, and CPU seconds a GB by process."""
    kafka = {
        (item["case"], item["event_bytes"]): item["megabytes_per_second"] for item in results if item["side"] == "kafka"
    }
    spent = [cpu_per_gigabyte(item) for item in results]
    names = sorted({name for one in spent for name in one} - {"all"})
    rows = [
        (
            item["case"],
            item["side"],
            item["event_bytes"],
            item["megabytes_per_second"],
            f"{item['megabytes_per_second'] / kafka[item['case'], item['event_bytes']]:.2f}" if kafka else "",
            " ".join(map(str, item["seconds"])),
            max(item["other_cores"]),
            one["all"],
            *(one.get(name, "") for name in names),
        )
        for item, one in zip(results, spent, strict=True)
    ]
    head = ("case", "side", "bytes", "MB/s", "of Kafka", "seconds", "cores busy with something else", "CPU s/GB")
    return table(f"{what} (medians), CPU seconds a GB by process", (*head, *names), rows)


def _cpu_table(pairs: Iterable[tuple[Result, Result | None]]) -> str:
    items = [item for pair in pairs for item in pair if item]
    spent = [cpu_per_gigabyte(item) for item in items]
    names = sorted({name for one in spent for name in one} - {"all"})
    rows = [
        (
            f"{item['case']} {item['side']}",
            item["event_bytes"],
            one["all"],
            FLOORS_S_PER_GB.get(item["case"], "") if item["event_bytes"] >= 1_000 else "",
            *(one.get(name, "") for name in names),
        )
        for item, one in zip(items, spent, strict=True)
    ]
    return table("CPU seconds a GB", ("case", "bytes", "all", "our floor", *names), rows)


def together(runs: Sequence[Sequence[Result]], side: str) -> list[Result]:
    """Makes one result a case of the results of several runs of one commit, under the name ``side``."""
    found: dict[tuple[str, int], list[Result]] = {}
    for item in (item for results in runs for item in results if item["side"] == "ours"):
        found.setdefault((item["case"], item["event_bytes"]), []).append(item)
    return [
        {
            "case": case,
            "side": side,
            "event_bytes": size_bytes,
            "events": items[0]["events"],
            **rates(items[0]["events"], size_bytes, [second for item in items for second in item["seconds"]]),
            "cpu_seconds": medians([item["cpu_seconds"] for item in items]),
            "other_cores": [cores for item in items for cores in item["other_cores"]],
        }
        for (case, size_bytes), items in found.items()
    ]
