"""Starts the two stores of these suites: a real Pravega, and our own services without their extension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.interop.real_pravega import RealPravega, running_pravega
from tests.spark.conftest import spark, streams

__all__ = ["own_without_extension", "real_pravega", "spark", "streams"]

EXTENSIONS_OFF = {"PRAVEGA_CONTROLLER_CONTROLLER__EXTENSIONS": "false"}


@pytest.fixture(scope="session")
def real_pravega(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPravega]:
    with running_pravega(tmp_path_factory.mktemp("real")) as server:
        yield server


@pytest.fixture(scope="session")
def own_without_extension(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    cluster = StandaloneProcess(tmp_path_factory.mktemp("own"))
    try:
        cluster.start(EXTENSIONS_OFF)
        yield cluster
    except BaseException:
        print(cluster.log_tail())
        raise
    finally:
        cluster.stop()
