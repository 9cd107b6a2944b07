"""Runs the crash matrix of the sink on a real Pravega, each point once; all but a few points with ``--long``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drills.sink.matrix import POINTS
from tests.drills.sink.points import Point
from tests.drills.sink.run_matrix import check_exact
from tests.interop.plain_bench import PLAIN_POINTS, PlainBench, torn_batch
from tests.interop.real_pravega import RealPravega
from tests.support.long_tests import long_but_for

CHOSEN = {
    **PLAIN_POINTS,
    **{
        name: POINTS[name]
        for name in (
            "task-durable",
            "replay-repartitioned",
            "replay-differs-fail",
            "empty-batch",
            "zombie-driver",
            "checkpoint-restored",
            "foreach-one-stream",
        )
    },
}
ALWAYS = ("after-record", "after-one-commit", "zombie-driver")


@pytest.fixture(scope="module")
def bench(real_pravega: RealPravega, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainBench]:
    with PlainBench(tmp_path_factory.mktemp("crashes"), real_pravega.controller_uri).running() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_for(ALWAYS, CHOSEN))
def test_nothing_lost_nothing_twice(bench: PlainBench, point: Point) -> None:
    check_exact(bench, point, [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "lost", "duplicated"), [pytest.param("skip", 50, 0, marks=pytest.mark.long), ("replay", 0, 50)]
)
def test_a_torn_batch(bench: PlainBench, policy: str, lost: int, duplicated: int) -> None:
    """A batch that cannot be decided is named, and costs what the option says."""
    (run,) = bench.new_runs(f"torn-{policy}", [0])
    torn_batch(bench, run, policy)
    counted = bench.audit(run)
    assert (counted.lost, counted.duplicated) == (lost, duplicated)
