"""Checks that a Redis too small for what the settings allow is refused before anything is written."""

from __future__ import annotations

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.standalone.options import StandaloneOptions
from segment_service.config import SegmentStoreConfig
from segment_service.tier1_memory import check_tier1_memory, tier1_bytes_needed
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer


def config_for(server: RedisServer) -> SegmentStoreConfig:
    return SegmentStoreConfig.from_values({"tier1": {"servers": [server.address]}})


async def test_a_redis_without_a_limit_is_fine(own_redis: RedisServer) -> None:
    await check_tier1_memory(config_for(own_redis))


async def test_a_redis_that_is_too_small_is_refused(own_redis: RedisServer) -> None:
    config = config_for(own_redis)
    needed = tier1_bytes_needed(config)
    assert needed > 1.5 * config.store.unflushed_bytes_max
    own_redis.call("CONFIG", "SET", "maxmemory", str(needed - 1))
    with pytest.raises(ConfigurationError, match=rf"maxmemory = {needed - 1}.*{needed} bytes"):
        await check_tier1_memory(config)
    own_redis.call("CONFIG", "SET", "maxmemory", str(needed))
    await check_tier1_memory(config)


@pytest.mark.parametrize(("stores", "containers"), [(1, 4), (2, 4), (1, 1024)])
def test_the_standalone_gives_redis_what_its_stores_need(stores: int, containers: int) -> None:
    config = SegmentStoreConfig.from_values({"store": {"containers": containers}})
    options = StandaloneOptions(segment_stores=stores, containers=containers)
    assert options.redis_memory_bytes >= tier1_bytes_needed(config)
    assert StandaloneOptions(redis_memory_mib=100).redis_memory_bytes == 100 * 1024 * 1024


async def test_a_redis_that_does_not_answer_is_believed(own_redis: RedisServer) -> None:
    config = config_for(own_redis)
    own_redis.stop()
    await check_tier1_memory(config)
