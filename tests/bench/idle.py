"""Measures what a streaming query costs while nothing is written: shares of a core, of Spark and of the services."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench.figures import Result, idle_aim_percent
from tests.bench.latency import running_query
from tests.bench.rig import Rig, say
from tests.bench.sides import Side

segments: Final = 10
quiet_s: Final = 10
"""A query is left alone for as long before it is watched: a source looks the less often the longer it is idle."""
OWN: Final = "driver-python"
"""The bench itself, which is no part of a query."""


BROKER: Final = "kafka"
"""The name of Kafka's side, and of its server."""
SPARK: Final = frozenset({"driver-jvm", "python-planning", "python-tasks"})
"""What works for a query of either side."""


def serves(group: str, side: str) -> bool:
    """Whether a group of processes works for queries of a side: the servers of the other one do not."""
    return group in SPARK or (group != OWN and (group == BROKER) == (side == BROKER))


class Idle:
    """A query without pause between its triggers on a stream that nobody writes to, beside the same without it."""

    def __init__(self, rig: Rig, seconds: int, runs: int) -> None:
        self._rig = rig
        self._seconds = seconds
        self._runs = runs

    def measure(self) -> list[Result]:
        """One result for each side; run n of ours is followed by run n of Kafka's."""
        found: dict[str, list[dict[str, float]]] = {side.name: [] for side in self._rig.sides}
        for _ in range(self._runs):
            for side in self._rig.sides:
                run = self._run(side)
                found[side.name].append(run)
                say(f"idle {side.name:<6} {told(run)}")
        return [self._result(side, runs) for side, runs in found.items()]

    def _result(self, side: str, runs: Sequence[Mapping[str, float]]) -> Result:
        percent = statistics.median(sum(run.values()) for run in runs)
        return {
            "side": side,
            "segments": segments,
            "seconds": self._seconds,
            "core_percent": round(percent, 2),
            "met": percent <= idle_aim_percent,
            "runs": [{name: round(value, 2) for name, value in run.items()} for run in runs],
        }

    def _run(self, side: Side) -> dict[str, float]:
        """Percent of a core by group: with the query, less what the session and the services take without it."""
        target = side.new_target("idle", segments)
        self._rig.watch.settle()
        without = self._watched()
        with running_query(self._rig, side, target):
            time.sleep(quiet_s)
            with_query = self._watched()
        side.drop(target)
        return {name: value - without[name] for name, value in with_query.items() if serves(name, side.name)}

    def _watched(self) -> dict[str, float]:
        """Percent of a core by group, without processes that come or go meanwhile: those of what was before."""
        before, began_s = self._rig.watch.living_s(), time.perf_counter()
        time.sleep(self._seconds)
        after, took_s = self._rig.watch.living_s(), time.perf_counter() - began_s
        return {
            name: 100 / took_s * sum(spent_s - before[name].get(pid, spent_s) for pid, spent_s in some.items())
            for name, some in after.items()
        }


def told(run: Mapping[str, float]) -> str:
    parts = ", ".join(f"{name} {value:.2f}" for name, value in run.items() if round(value, 2))
    return f"{sum(run.values()):.2f} % of a core ({parts})"
