"""The two stores that these suites run on: a real Pravega, and our own services without their extension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.real_pravega import RealPravega, running_pravega


@pytest.fixture(scope="session")
def real_pravega(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPravega]:
    with running_pravega(tmp_path_factory.mktemp("real")) as server:
        yield server
