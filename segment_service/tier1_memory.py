"""Checks that the Redis servers of Tier 1 have room for what a store may put there."""

from __future__ import annotations

from typing import Final

import structlog

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_common.services.redis_access import RedisAccess
from segment_service.config import SegmentStoreConfig
from segment_service.metadata.back_pressure import hard_limit_ratio
from segment_service.plog.redis_connection import RedisConnection

reserve_bytes: Final = 64 * 1024 * 1024
"""For recovery, checkpoints and metadata logs of a store whose Tier 1 is full."""
redis_overhead_ratio: Final = 1.3
"""Memory that Redis takes for a byte of a frame of 1 MiB, measured; frames of other sizes take less."""
_call_timeout_s: Final = 5.0


def tier1_bytes_needed(config: SegmentStoreConfig) -> int:
    """Bytes that the logs of one store may occupy on each server while Tier 2 is away.

    What is not in Tier 2; what was logged since the last checkpoint; and one plog more for each container, as space is
    freed in whole plogs.
    """
    unflushed = int(config.store.unflushed_bytes_max * hard_limit_ratio)
    logged = unflushed + config.tier1.checkpoint_bytes + config.store.containers * config.tier1.plog_bytes
    return int(logged * redis_overhead_ratio) + reserve_bytes


async def check_tier1_memory(config: SegmentStoreConfig) -> None:
    """``ConfigurationError`` if a server's ``maxmemory`` is below what one store needs.

    A server that keeps its settings to itself is believed; a log in files needs none.
    """
    if config.tier1.folder is not None:
        return
    needed, access = tier1_bytes_needed(config), config.redis.access()
    for address in (server for group in config.tier1.persistence_groups for server in group.servers):
        limit = await _maxmemory(address, access)
        if 0 < limit < needed:
            raise ConfigurationError(
                f"Redis at {address} has maxmemory = {limit}, but this store may need {needed} bytes there: "
                "raise it, or lower store.unflushed_bytes_max, tier1.checkpoint_bytes or tier1.plog_bytes"
            )


async def _maxmemory(address: str, access: RedisAccess) -> int:
    """The server's limit in bytes; 0 for no limit, and also if the server gives no answer."""
    try:
        connection = await RedisConnection.open(
            address, connect_timeout_s=_call_timeout_s, reply_timeout_s=_call_timeout_s, access=access
        )
        try:
            answer = await connection.call("CONFIG", "GET", "maxmemory")
        finally:
            connection.abort()
        return int(answer[1]) if answer else 0
    except (PravegaError, OSError) as error:
        structlog.get_logger().warning("maxmemory of a Redis is not known", server=address, error=str(error))
        return 0
