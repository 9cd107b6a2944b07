"""Kills the steps of a commit by the record, on our own services without their extension; most with ``--long``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.drills.sink.matrix import POINTS
from tests.drills.sink.points import Point
from tests.drills.sink.run_matrix import check_exact
from tests.interop.plain_bench import PLAIN_POINTS, PlainBench
from tests.support.long_tests import long_but_for

CHOSEN = {
    **{name: PLAIN_POINTS[name] for name in ("after-record", "after-one-commit", "after-commits")},
    "zombie-driver": POINTS["zombie-driver"],
}
ALWAYS = ("after-one-commit",)


@pytest.fixture(scope="module")
def bench(own_without_extension: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainBench]:
    folder = tmp_path_factory.mktemp("crashes")
    with PlainBench(folder, own_without_extension.controller_uri).running() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_for(ALWAYS, CHOSEN))
def test_nothing_lost_nothing_twice(bench: PlainBench, point: Point) -> None:
    check_exact(bench, point, [0, 1])
