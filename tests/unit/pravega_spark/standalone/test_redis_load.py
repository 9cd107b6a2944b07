"""What the standalone asks of a Redis that has loaded its append-only file."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.exceptions import ConnectionError

from pravega_spark.standalone import redis_and_minio
from pravega_spark.standalone.redis_and_minio import aof_rewrite_bytes_min, redis_configuration

LARGE = aof_rewrite_bytes_min


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
    await redis_and_minio._rewrite_what_was_loaded(tmp_path / "redis.sock")
    assert redis.rewrites == rewrites


def test_the_size_is_that_of_the_settings() -> None:
    assert "auto-aof-rewrite-min-size 1gb\n" in redis_configuration
    assert aof_rewrite_bytes_min == 1 << 30
