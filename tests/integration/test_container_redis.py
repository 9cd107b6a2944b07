"""Runs a container on a real Redis: restarts of either, take-over, truncation, and random crashes against the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pravega_common.errors import ContainerOffline, Fenced, PravegaError, UnknownOutcome
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.data_log import DurableDataLog
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.property.crash_model import TARGETS, CrashTest
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer

SETTINGS = PlogSettings(block_bytes=3_000_000, heal_time_max_s=10.0, reply_timeout_s=1.0)


class RedisKit(ContainerKit):
    """Logs on Redis; Tier 2 stays in memory."""

    cpo: RedisCPO

    def make_log(self, container_id: int) -> DurableDataLog:
        return RedisDataLog(container_id, "store", self.cpo, "test", SETTINGS)


@pytest.fixture
async def cpo(own_redis: RedisServer) -> AsyncIterator[RedisCPO]:
    cpo = RedisCPO(own_redis.address)
    group = PersistenceGroup("group", (own_redis.address,))
    await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
    yield cpo
    await cpo.close()


@pytest.fixture
def kit(cpo: RedisCPO) -> RedisKit:
    kit = RedisKit(checkpoints=CheckpointPolicy(operations_max=1_000, bytes_max=1_000_000))
    kit.cpo = cpo
    kit.write_to_tier2()
    return kit


async def test_a_restarted_redis_is_only_a_slow_append(kit: RedisKit, own_redis: RedisServer) -> None:
    container = await kit.open()
    await container.create_segment("s")
    appends: list[asyncio.Future[int]] = []
    for number in range(300):
        appends.append(container.append("s", [b"%04d" % number * 250]))
        if number == 150:
            await asyncio.to_thread(own_redis.restart_after_kill)
        await asyncio.sleep(0)
    assert await asyncio.gather(*appends) == [1_000 * (number + 1) for number in range(300)]
    assert await read_all(container, "s") == b"".join(b"%04d" % number * 250 for number in range(300))
    assert container.epoch == 1
    await container.stop()


async def test_a_new_owner_takes_over_in_the_middle_of_the_load(kit: RedisKit) -> None:
    old = await kit.open()
    await old.create_segment("s")
    appends = [old.append("s", [b"%04d" % number * 2_500]) for number in range(400)]
    await appends[100]
    new = await kit.open()
    appends.append(old.append("s", [b"zombie"]))  # also if all the others were quicker than the take-over
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(results[-1], UnknownOutcome | ContainerOffline)
    acknowledged = [number for number, result in enumerate(results) if not isinstance(result, BaseException)]
    assert all(isinstance(item, int | UnknownOutcome | ContainerOffline) for item in results)
    content = await read_all(new, "s")
    present = [int(content[at : at + 4]) for at in range(0, len(content), 10_000)]
    assert present == list(range(len(present))), "a prefix, in order"
    assert present[: len(acknowledged)] == acknowledged
    with pytest.raises(Fenced):
        await old.wait_stopped()
    await new.stop()


async def test_truncation_gives_redis_its_memory_back(kit: RedisKit, own_redis: RedisServer) -> None:
    container = await kit.open()
    await container.create_segment("s")
    for _ in range(40):
        await kit.back_pressure.wait_open()
        await asyncio.gather(*(container.append("s", [bytes(100_000)]) for _ in range(10)))
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything is in Tier 2")
    await eventually(lambda: used_memory(own_redis) < 15_000_000, "Tier 1 is truncated")
    await container.stop()
    again = await kit.open()
    assert (await again.get_info("s")).length == 40_000_000
    assert again.durable_log.recovered.appended_bytes < 15_000_000
    await again.stop()


def used_memory(server: RedisServer) -> int:
    lines = server.call("INFO", "memory").decode().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("used_memory:"))


class RedisCrashTest(CrashTest):
    """The fault of the log is a Redis that is killed and comes back, or a connection that is gone for good."""

    server: RedisServer

    async def _fail_log(self, container: SegmentContainer) -> None:
        for _ in range(self.random.randrange(20)):
            self._append(container, self.random.choice(TARGETS))
            await asyncio.sleep(0)
        restart = asyncio.ensure_future(asyncio.to_thread(self.server.restart_after_kill))
        for _ in range(self.random.randrange(20)):
            self._append(container, self.random.choice(TARGETS))
            # Appends are spread over the restart of a real server.
            await asyncio.sleep(0.002)
        await restart


@pytest.mark.parametrize("seed", range(6))
async def test_random_crashes(seed: int, cpo: RedisCPO, own_redis: RedisServer) -> None:
    def make_kit(**options: Any) -> RedisKit:
        kit = RedisKit(**options)
        kit.cpo = cpo
        return kit

    test = RedisCrashTest(seed, make_kit)
    test.server = own_redis
    async with asyncio.timeout(120):
        await test.run(crashes=5, steps=120)


async def test_a_redis_that_stays_away_takes_the_container_offline(kit: RedisKit, own_redis: RedisServer) -> None:
    settings = PlogSettings(block_bytes=3_000_000, heal_time_max_s=1.0, reply_timeout_s=0.5, connect_timeout_s=0.5)
    kit.make_log = lambda container_id: RedisDataLog(  # type: ignore[method-assign]
        container_id, "store", kit.cpo, "test", settings
    )
    container = await kit.open()
    await container.create_segment("s")
    await container.append("s", [b"acknowledged"])
    waiting = asyncio.ensure_future(container.read("s", 12, 10))
    own_redis.kill()
    with pytest.raises(UnknownOutcome):
        await container.append("s", [b"unknown"])
    with pytest.raises(PravegaError):
        await container.wait_stopped()
    assert (await waiting).at_tail
    with pytest.raises(ContainerOffline):
        await container.append("s", [b"refused"])
    own_redis.start()
    again = await kit.open()
    assert (await read_all(again, "s")).startswith(b"acknowledged")
    await again.stop()
