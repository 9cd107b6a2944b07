"""What the standalone asks of a Redis that has loaded its append-only file, and how it has Redis use memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from pravega_spark.standalone import redis_and_minio
from pravega_spark.standalone.redis_and_minio import RedisChild, aof_rewrite_bytes, redis_allocator_variables
from pravega_spark.standalone.supervisor import ChildSpec
from tests.support.redis_child import running_redis

GIB = 1 << 30
LARGE = 4 * GIB


class LoadedRedis:
    """A Redis that has loaded a file, of a version that this machine need not have."""

    def __init__(self, version: str, base_bytes: int, current_bytes: int, *, answers: bool = True) -> None:
        self.rewrites = 0
        self._answers = answers
        self._info: dict[str, dict[str, object]] = {
            "server": {"redis_version": version},
            "persistence": {"aof_base_size": base_bytes, "aof_current_size": current_bytes},
        }

    async def info(self, section: str) -> dict[str, object]:
        if not self._answers:
            raise ConnectionError("gone")
        return self._info[section]

    async def bgrewriteaof(self) -> None:
        self.rewrites += 1

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("redis", "rewrites"),
    [
        (LoadedRedis("6.2.14", LARGE, LARGE), 1),
        (LoadedRedis("6.2.14", LARGE - 1, LARGE - 1), 0),
        (LoadedRedis("6.2.14", LARGE, LARGE + 1), 0),  # it grew: it was not loaded just now
        (LoadedRedis("7.0.15", LARGE, LARGE), 0),
        (LoadedRedis("6.2.14", LARGE, LARGE, answers=False), 0),
    ],
    ids=["large", "small", "grown", "of-version-7", "away"],
)
async def test_a_large_file_is_rewritten_once(
    redis: LoadedRedis, rewrites: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_and_minio, "Redis", lambda unix_socket_path: redis)
    await redis_and_minio._rewrite_what_was_loaded(tmp_path / "redis.sock", LARGE)
    assert redis.rewrites == rewrites


@pytest.mark.parametrize(
    ("free_bytes", "servers", "size"),
    [(2 * GIB, 1, GIB), (12 * GIB, 1, 3 * GIB), (12 * GIB, 3, GIB), (100 * GIB, 3, 4 * GIB)],
)
def test_the_size_follows_from_the_free_disk(free_bytes: int, servers: int, size: int) -> None:
    assert aof_rewrite_bytes(free_bytes, servers) == size


def test_the_size_is_in_the_settings(tmp_path: Path) -> None:
    RedisChild("redis", tmp_path, tmp_path / "redis.sock", 1_000, LARGE).spec(tmp_path, tmp_path)
    lines = (tmp_path / "redis.conf").read_text().splitlines()
    assert {"auto-aof-rewrite-min-size 4294967296", "maxmemory 1000"} <= set(lines)


@contextmanager
def running(spec: ChildSpec, socket: Path) -> Iterator[tuple[int, Redis]]:
    """The process of a Redis with jemalloc that is started so, and a client of it."""
    with running_redis(spec, socket) as (pid, redis):
        if not redis.info("memory")["mem_allocator"].startswith("jemalloc"):
            pytest.skip("this Redis has no jemalloc")
        yield pid, redis


def decay_ms(spec: ChildSpec, socket: Path) -> int:
    """How long a Redis that is started so keeps freed memory for itself."""
    with running(spec, socket) as (_, redis):
        said = redis.memory_malloc_stats()
        assert isinstance(said, bytes)
        (found,) = re.findall(rb"opt\.dirty_decay_ms: (\d+)", said)
        return int(found)


def fresh_pages(pid: int) -> int:
    """How many pages a process took from the system so far, without those that it read from a disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_redis_keeps_freed_memory_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = RedisChild("redis", tmp_path, tmp_path / "redis.sock", 16 << 20, LARGE)
    for name in redis_allocator_variables:
        monkeypatch.delenv(name, raising=False)
    assert decay_ms(child.spec(tmp_path, tmp_path), child.socket) == 60_000
    for name in redis_allocator_variables:  # as somebody wants it
        monkeypatch.setenv(name, "dirty_decay_ms:1234")
    assert decay_ms(child.spec(tmp_path, tmp_path), child.socket) == 1_234


def test_redis_uses_the_memory_of_large_values_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = RedisChild("redis", tmp_path, tmp_path / "redis.sock", 256 << 20, LARGE)
    for name in redis_allocator_variables:
        monkeypatch.delenv(name, raising=False)
    values, bytes_each, page_bytes = 16, 4 << 20, 4 << 10
    with running(child.spec(tmp_path, tmp_path), child.socket) as (pid, redis):
        for _ in range(3):
            before = fresh_pages(pid)
            for number in range(values):
                redis.set(f"value-{number}", bytes(bytes_each))
            taken = fresh_pages(pid) - before
            redis.delete(*(f"value-{number}" for number in range(values)))
    assert taken < values * bytes_each // page_bytes // 4
