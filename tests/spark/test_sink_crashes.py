"""Runs the sink's crash matrix with two runs a point; ``scripts/drill sink --runs 30`` takes as many as it needs.

Of each kind of point a few run always, the others with ``--long``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drills.sink.bench import Bench
from tests.drills.sink.matrix import POINTS
from tests.drills.sink.points import Point
from tests.drills.sink.run_matrix import check_exact, run_together
from tests.support.long_tests import long_but_for

SEEDS = (0, 1)
ALWAYS = {
    "task-durable",
    "commit-before",
    "commit-decided",
    "commit-log",
    "offset-logged",
    "replay-differs-fail",
    "empty-batch",
    "foreach-one-stream",
    "controller-members-bound",
    "controller-commit-recorded",
    "executor-killed",
    "zombie-attempt",
    "retry-killed",
    "zombie-driver",
    "checkpoint-restored",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("drill"), shares_class_data=True).running() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_for(ALWAYS, POINTS))
def test_nothing_lost_nothing_twice(bench: Bench, point: Point) -> None:
    check_exact(bench, point, SEEDS)


@pytest.mark.slow
def test_rows_that_come_twice_are_seen(bench: Bench) -> None:
    """The same without transactions: nothing is lost, and the comparison above would have seen the rest."""
    bench.exactly_once = False
    for outcome in run_together(bench, POINTS["task-durable"], SEEDS):
        assert not outcome.failure, outcome.failure
        assert outcome.tally.duplicated > 0
        assert outcome.tally.lost == 0
