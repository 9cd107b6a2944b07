"""Runs the points, and counts and keeps their outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.drills.sink.audit import Tally
from tests.drills.sink.bench import Bench
from tests.drills.sink.points import Point


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run: the content of its streams, and the step that did not happen ('' if all did)."""

    tally: Tally
    failure: str = ""


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

    def add(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        self.runs += len(outcomes)
        self.seconds += seconds
        for outcome in outcomes:
            self.tally += outcome.tally
            if outcome.failure:
                self.failures.append(outcome.failure)

    @property
    def good(self) -> bool:
        """At least once, rows may come twice; nothing may be lost in any mode."""
        if self.exactly_once:
            return self.tally.exact and not self.failures
        return not (self.tally.lost or self.tally.phantom or self.failures)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}


def run_together(bench: Bench, point: Point, seeds: Sequence[int]) -> list[Outcome]:
    """One run for each seed, hurt together and each counted alone; a story that fails fails for all of them."""
    runs = bench.new_runs(point.name, seeds)
    try:
        point.story(bench, runs)
        return [Outcome(bench.audit(run)) for run in runs]
    except Exception as error:
        bench.renew_all()
        return [Outcome(Tally(), f"{type(error).__name__}: {error}") for _ in runs]


def check_exact(bench: Bench, point: Point, seeds: Sequence[int]) -> None:
    """Checks a point: all its steps happened, and no row is lost, twice or out of order."""
    for outcome in run_together(bench, point, seeds):
        assert not outcome.failure, outcome.failure
        assert outcome.tally.exact, outcome.tally


def rounds(runs: int, together: int) -> list[range]:
    """The seeds of each round."""
    return [range(first, min(first + together, runs)) for first in range(0, runs, together)]


def run_matrix(
    bench: Bench, points: Sequence[Point], runs: int, together: int, tell: Callable[[list[Row], Row, int, int], None]
) -> list[Row]:
    """Every point with some runs together, then again with others, so that a drill that is interrupted has seen all.

    Interrupted, it returns what was run. ``tell`` gets all rows, the one that changed, the runs done and those in all.
    """
    chosen = [point for point in points if bench.exactly_once or point.at_least_once]
    rows = [Row(point.name, point.what, bench.exactly_once) for point in chosen]
    done = 0
    try:
        for seeds in rounds(runs, together):
            for point, row in zip(chosen, rows, strict=True):
                started_s = time.monotonic()
                outcomes = run_together(bench, point, seeds)
                row.add(outcomes, time.monotonic() - started_s)
                done += len(outcomes)
                tell(rows, row, done, runs * len(chosen))
    except KeyboardInterrupt:
        pass
    return [row for row in rows if row.runs]
