"""What the standalone asks of a Redis that has loaded its append-only file."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.exceptions import ConnectionError

from pravega_spark.standalone import redis_and_minio
from pravega_spark.standalone.redis_and_minio import RedisChild, aof_rewrite_bytes

GIB = 1 << 30
LARGE = 4 * GIB


class LoadedRedis:
    """A Redis that has loaded a file, of a version that this machine need not have."""

    def __init__(self, version: str, base_bytes: int, current_bytes: int, *, answers: bool = True) -> None:
        self.rewrites = 0
        self._answers = answers
        self._info = {
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
