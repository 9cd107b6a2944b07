"""Runs a cluster for tests: a standalone on free ports with its own data folder, stopped by process id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pravega_spark.standalone.process import StandaloneProcess


@contextmanager
def running_cluster(folder: Path, **options: object) -> Iterator[StandaloneProcess]:
    """``options`` as of ``StandaloneProcess``; on a failure inside, the logs' last lines are in the report."""
    cluster = StandaloneProcess(folder, **options)
    with cluster:
        try:
            yield cluster
        except BaseException:
            print(cluster.log_tail())
            raise


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """One cluster for a test module; import it into the module to use it."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started
