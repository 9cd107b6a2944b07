"""Provides pytest fixtures for real servers; import the ones you need into a conftest.py or a test file.

``redis_server`` and ``minio_server`` are shared by all tests of a session (use names of your own in them);
``own_redis`` belongs to one test, which may kill, pause or fill it, and ``proxy`` stands before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.proxy import CuttingProxy
from tests.support.servers import MinioServer, RedisServer, running_minio, running_redis


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with running_minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def proxy(own_redis: RedisServer) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(own_redis.address)
    await proxy.start()
    yield proxy
    await proxy.stop()
