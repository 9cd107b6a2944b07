"""Stores hold appends back before a Redis that they share is full, and let them go on when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.container.registry import ContainerRegistry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.tier1_memory_watch import Tier1MemoryWatch
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis


async def test_appends_are_held_back_above_the_share(own_redis: RedisServer) -> None:
    clock, pressure = ManualClock(), StoreBackPressure()
    groups = ChoiceByUse([PersistenceGroup("group", (own_redis.address,))])
    watch = Tier1MemoryWatch(groups, pressure, ContainerRegistry(), clock)
    await watch.start()
    await eventually(lambda: bool(groups.memory), "a first sample")
    pressure.change(100)
    assert pressure.is_open, "a server without a limit"
    used = groups.memory[own_redis.address].used
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
    groups = ChoiceByUse([PersistenceGroup("group", (own_redis.address,))])
    watch = Tier1MemoryWatch(groups, kit.back_pressure, registry, clock)
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


async def test_a_drained_group_that_is_full_makes_no_checkpoints(own_redis: RedisServer, tmp_path: Path) -> None:
    """Truncation frees nothing there: no log of this store has plogs in it."""
    kit, clock, registry = ContainerKit(), ManualClock(), ContainerRegistry()
    container = await kit.open()
    registry.add(container)
    await container.create_segment("s")
    await container.append("s", [bytes(2_000_000)])
    with running_redis(tmp_path / "drained") as drained:
        drained.call("CONFIG", "SET", "maxmemory", str(1024 * 1024))
        kept, left = (PersistenceGroup(name, (one.address,)) for name, one in (("a", own_redis), ("b", drained)))
        groups = ChoiceByUse([kept])
        groups.saw(PersistenceCluster("test", (kept, left)))
        watch = Tier1MemoryWatch(groups, kit.back_pressure, registry, clock)
        await watch.start()
        await eventually(lambda: own_redis.address in groups.memory, "a first sample")
        for _ in range(3):
            await clock.advance(1.0)
        await container.durable_log.barrier()
        assert set(groups.memory) == {own_redis.address}, "no alert, and no load of this store"
        assert container.durable_log.checkpoints_total == 1
        await watch.stop()
    await container.stop()


async def test_a_server_that_was_replaced_is_forgotten(own_redis: RedisServer, tmp_path: Path) -> None:
    """Its last sample would go on to be reported, and one that was nearly full would be for ever."""
    with running_redis(tmp_path / "old") as old:
        clock, group = ManualClock(), PersistenceGroup("group", (old.address,))
        groups = ChoiceByUse([group])
        watch = Tier1MemoryWatch(groups, StoreBackPressure(), ContainerRegistry(), clock)
        await watch.start()
        await eventually(lambda: set(groups.memory) == {old.address}, "a first sample")
        groups.saw(PersistenceCluster("test", (PersistenceGroup("group", (own_redis.address,)),)))

        async def replaced() -> bool:
            await clock.advance(1.0)
            return set(groups.memory) == {own_redis.address}

        await eventually(replaced, "the samples of the new server alone", 5)
        await eventually(lambda: b"connected_clients:1\r" in old.call("INFO", "clients"), "the connection is closed")
        await watch.stop()


async def test_appends_wait_only_when_no_group_is_left_for_new_plogs(own_redis: RedisServer, tmp_path: Path) -> None:
    with running_redis(tmp_path / "second") as second:
        clock, pressure = ManualClock(), StoreBackPressure()
        pressure.change(100)
        groups = ChoiceByUse([PersistenceGroup("a", (own_redis.address,)), PersistenceGroup("b", (second.address,))])
        watch = Tier1MemoryWatch(groups, pressure, ContainerRegistry(), clock)
        await watch.start()
        await eventually(lambda: len(groups.memory) == 2, "a first sample of both")
        full = str(groups.memory[own_redis.address].used * 11 // 10)
        own_redis.call("CONFIG", "SET", "maxmemory", full)

        async def seen(server: RedisServer) -> bool:
            await clock.advance(1.0)
            return groups.memory[server.address].limit > 0

        await eventually(lambda: seen(own_redis), "the first group is short")
        assert pressure.is_open
        assert {groups.choose(["a", "b"], container, 1) for container in range(4)} == {"b"}
        second.call("CONFIG", "SET", "maxmemory", full)
        await eventually(lambda: seen(second), "both groups are short")
        assert not pressure.is_open
        own_redis.pause()
        second.call("CONFIG", "SET", "maxmemory", "0")

        async def opened() -> bool:
            await clock.advance(1.0)
            return pressure.is_open

        await eventually(opened, "a silent server holds no other up")
        own_redis.resume()
        await watch.stop()
