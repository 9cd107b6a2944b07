"""The most important points of the sink's crash matrix, once each; ``scripts/drill sink`` runs all of them often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drills.sink.bench import Bench
from tests.drills.sink.matrix import POINTS
from tests.drills.sink.run_matrix import run_point

EXACTLY_ONCE = [
    "task-durable",
    "commit-before",
    "commit-decided",
    "commit-readable",
    "controller-commit-recorded",
    "replay-repartitioned",
    "replay-differs-fail",
    "empty-batch",
    "retry-upstream",
    "zombie-driver",
    "checkpoint-restored",
    "foreach-one-stream",
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("drill")).running() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACTLY_ONCE)
def test_nothing_lost_nothing_twice(bench: Bench, name: str) -> None:
    counted, _, failure = run_point(bench, POINTS[name], seed=0)
    assert not failure, failure
    assert counted.exact, counted


@pytest.mark.slow
def test_rows_that_come_twice_are_seen(bench: Bench) -> None:
    """The same without transactions: nothing is lost, and the comparison above would have seen the rest."""
    bench.exactly_once = False
    counted, _, failure = run_point(bench, POINTS["task-durable"], seed=0)
    assert not failure, failure
    assert counted.duplicated > 0
    assert counted.lost == 0
