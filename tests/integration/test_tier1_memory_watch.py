"""Stores hold appends back before a Redis that they share is full, and let them go on when it is not."""

from __future__ import annotations

import pytest

from segment_service.container.registry import ContainerRegistry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.tier1_memory_watch import Tier1MemoryWatch
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer


async def test_appends_are_held_back_above_the_share(own_redis: RedisServer) -> None:
    clock, pressure = ManualClock(), StoreBackPressure()
    watch = Tier1MemoryWatch([own_redis.address], pressure, ContainerRegistry(), clock)
    await watch.start()
    await eventually(lambda: bool(watch.memory), "a first sample")
    pressure.change(100)
    assert pressure.is_open, "a server without a limit"
    used = watch.memory[own_redis.address].used
    own_redis.call("CONFIG", "SET", "maxmemory", str(used * 11 // 10))

    async def looked(is_open: bool) -> bool:
        await clock.advance(1.0)
        return pressure.is_open is is_open

    await eventually(lambda: looked(False), "appends wait above the share")
    pressure.change(-100)
    await eventually(lambda: looked(True), "nothing of this store can be freed: appends go on")
    pressure.change(100)
    await eventually(lambda: looked(False), "appends wait again")
    own_redis.call("CONFIG", "SET", "maxmemory", str(used * 10))
    await eventually(lambda: looked(True), "appends go on")
    own_redis.call("CONFIG", "SET", "maxmemory", str(used * 11 // 10))
    await eventually(lambda: looked(False), "appends wait again")
    own_redis.kill()
    await eventually(lambda: looked(True), "what is not known holds nothing back")
    await watch.stop()


@pytest.mark.parametrize(("logged_bytes", "checkpoints"), [(100, 1), (2_000_000, 2)])
async def test_containers_write_a_checkpoint_where_tier1_can_be_truncated(
    own_redis: RedisServer, logged_bytes: int, checkpoints: int
) -> None:
    kit, clock, registry = ContainerKit(), ManualClock(), ContainerRegistry()
    container = await kit.open()
    registry.add(container)
    await container.create_segment("s")
    await container.append("s", [bytes(logged_bytes)])
    own_redis.call("CONFIG", "SET", "maxmemory", str(1024 * 1024))
    watch = Tier1MemoryWatch([own_redis.address], kit.back_pressure, registry, clock)
    await watch.start()
    await eventually(lambda: not kit.back_pressure.is_open, "appends wait")
    await container.durable_log.barrier()
    for _ in range(3):
        await clock.advance(1.0)
        await container.durable_log.barrier()
    assert container.durable_log.checkpoints_total == checkpoints
    await watch.stop()
    assert kit.back_pressure.is_open
    await container.stop()
