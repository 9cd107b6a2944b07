"""Provides pytest fixtures for real servers; import the ones you need into a conftest.py or a test file.

``redis_server`` and ``minio_server`` are shared by all tests of a session (use names of your own in them);
``own_redis`` belongs to one test, which may kill, pause or fill it, and ``proxy`` stands before it. ``redis_group`` and
``own_redis_group`` are the same with the three servers of a persistence group.
"""

from __future__ import annotations

import contextlib
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
def redis_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, ...]]:
    """Three servers, as a persistence group has them."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running_redis(tmp_path_factory.mktemp("redis"))) for _ in range(3))


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with running_minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def own_redis_group(tmp_path: Path) -> Iterator[tuple[RedisServer, ...]]:
    """Three servers of one test."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running_redis(tmp_path / f"redis-{number}")) for number in range(3))


@pytest.fixture
async def proxy(own_redis: RedisServer) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(own_redis.address)
    await proxy.start()
    yield proxy
    await proxy.stop()
