"""Tests when the append-only file of a Redis is rewritten, and that a real one does it."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis
from structlog.testing import capture_logs

from pravega_spark.standalone import quiet_rewrite
from pravega_spark.standalone.options import StandaloneOptions, Tier1
from pravega_spark.standalone.quiet_rewrite import (
    FileState,
    QuietRewrite,
    look_s,
    quiet_bytes_max,
    rewrite_bytes_min,
)
from pravega_spark.standalone.redis_and_minio import RedisChild
from pravega_spark.standalone.standalone import helpers_of_redis
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.redis_child import running_redis

LARGE = rewrite_bytes_min
LIVE = LARGE // 4
LOAD_BYTES = 12 << 20


@pytest.mark.parametrize(
    ("before", "now", "is_rewritten"),
    [
        (FileState(LARGE, LIVE), FileState(LARGE, LIVE), True),
        (FileState(LARGE, LIVE), FileState(LARGE + quiet_bytes_max, LIVE), True),
        (FileState(LARGE, LIVE), FileState(LARGE + quiet_bytes_max + 1, LIVE), False),
        (FileState(LARGE + 1, LIVE), FileState(LARGE, LIVE), False),
        (FileState(LARGE - 1, LIVE), FileState(LARGE - 1, 0), False),
        (FileState(LARGE, LIVE), FileState(LARGE, LIVE + 1), False),
        (FileState(LARGE, LIVE), FileState(LARGE, LIVE, is_rewriting=True), False),
        (None, FileState(LARGE, LIVE), False),
    ],
    ids=["idle", "quiet", "written", "another", "small", "live", "under-way", "first"],
)
def test_a_large_file_with_little_in_it_is_rewritten_in_a_quiet_minute(
    before: FileState | None, now: FileState, is_rewritten: bool
) -> None:
    assert now.calls_for_rewrite(before) == is_rewritten


async def test_a_real_one_rewrites_its_file_at_the_first_look_after_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet_rewrite, "rewrite_bytes_min", LOAD_BYTES)
    child = RedisChild("redis", tmp_path, tmp_path / "redis.sock", 256 << 20, 1 << 32)
    rewrite = QuietRewrite("redis", child.socket)
    with running_redis(child.spec(tmp_path, tmp_path), child.socket) as (_, redis):
        for _ in range(2):
            load(redis)
            await rewrite.look()
        assert not redis.info("persistence")["aof_rewrite_in_progress"]
        assert file_bytes(redis) > 2 * LOAD_BYTES
        await rewrite.look()
        await eventually(lambda: file_bytes(redis) < LOAD_BYTES, "a rewritten file")
        assert redis.get("kept") == b"what is live"


async def test_a_redis_that_is_away_is_looked_at_again(tmp_path: Path) -> None:
    clock = ManualClock()
    service = QuietRewrite("redis", tmp_path / "redis.sock", clock)
    await service.start()

    async def has_looked_thrice() -> bool:
        await clock.advance(look_s)
        return len(logs) >= 3

    with capture_logs() as logs:
        await eventually(has_looked_thrice, "three looks")
    assert service.is_running
    await service.stop()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (StandaloneOptions(redis_servers=1), ["redis"]),
        (StandaloneOptions(redis_servers=3), ["redis-0", "redis-1", "redis-2", "redis-cpo"]),
        (StandaloneOptions(tier1=Tier1.FILE), []),
    ],
    ids=["one", "three", "none"],
)
def test_the_standalone_looks_at_each_of_its_servers(
    options: StandaloneOptions, names: list[str], tmp_path: Path
) -> None:
    servers = {name: f"unix:{tmp_path}/{name}.sock" for name in names} | {"minio": "127.0.0.1:9000"}
    helpers = helpers_of_redis(options, tmp_path, servers)
    assert [helper.name for helper in helpers if isinstance(helper, QuietRewrite)] == [
        f"{name}-rewrite" for name in names
    ]


def load(redis: Redis) -> None:
    """Append twelve MiB to the file of a Redis, and leave a few bytes that are live."""
    for _ in range(LOAD_BYTES >> 20):
        redis.set("value", bytes(1 << 20))
    redis.delete("value")
    redis.set("kept", "what is live")


def file_bytes(redis: Redis) -> int:
    return int(redis.info("persistence")["aof_current_size"])
