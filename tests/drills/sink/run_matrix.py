"""Runs the points, counts, and keeps what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from tests.drills.sink.audit import Tally
from tests.drills.sink.bench import Bench
from tests.drills.sink.points import Point


@dataclass
class Row:
    """All runs of one point."""

    point: str
    what: str
    exactly_once: bool
    runs: int = 0
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """At least once, rows may come twice; nothing may be lost in any mode."""
        if self.exactly_once:
            return self.tally.exact and not self.failures
        return not (self.tally.lost or self.tally.phantom or self.failures)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}


def run_point(bench: Bench, point: Point, seed: int) -> tuple[Tally, float, str]:
    """What one run left, its seconds, and what it could not see ('' if it went as told)."""
    started_s = time.monotonic()
    run = bench.new_run(point.name, seed)
    failure = ""
    try:
        point.story(bench, run)
        counted = bench.audit(run)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        counted = Tally()
        bench.renew_all()
    return counted, time.monotonic() - started_s, failure


def run_matrix(
    bench: Bench, points: Sequence[Point], runs: int, tell: Callable[[list[Row], Row, int, int], None]
) -> list[Row]:
    """Every point once, then again, so that a drill that is interrupted has seen all.

    Interrupted, it returns what was run. ``tell`` gets all rows, the one that changed, the runs done and those in all.
    """
    chosen = [point for point in points if bench.exactly_once or point.at_least_once]
    rows = [Row(point.name, point.what, bench.exactly_once) for point in chosen]
    for seed, (number, point) in product(range(runs), enumerate(chosen)):
        try:
            counted, seconds, failure = run_point(bench, point, seed)
        except KeyboardInterrupt:
            break
        row = rows[number]
        row.runs += 1
        row.tally += counted
        row.seconds += seconds
        if failure:
            row.failures.append(failure)
        tell(rows, row, seed * len(chosen) + number + 1, runs * len(chosen))
    return [row for row in rows if row.runs]
