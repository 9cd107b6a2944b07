"""Tests a hand-over by an owner that was overtaken without noticing: one server of three knew of no other owner.

What that server alone took is copied to the others, as a hand-over does. It must not be acknowledged: the later owner
has read the log already.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from pravega_common.errors import Fenced, UnknownOutcome
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.simulator.network import Network
from tests.simulator.oracle import RemoteCPO
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.virtual_loop import VirtualClock, VirtualLoop
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import close_all, read_entries


class World:
    """Three servers of Tier 1; the control plane oracle is on a server of its own."""

    def __init__(self, loop: VirtualLoop, network: Network) -> None:
        self.network = network
        self.servers = [SimulatedRedis(f"redis-{number}:6379", InMemoryCPO, loop.time) for number in range(3)]
        for server in self.servers:
            network.servers[server.address] = server
        oracle = SimulatedRedis("oracle:6379", InMemoryCPO, loop.time)
        self.cpo = cast(ControlPlaneOracle, RemoteCPO(network, oracle, random.Random(1)))
        self.now_s = loop.time
        self._clock = VirtualClock(loop)

    async def opened(self, owner: str) -> RedisDataLog:
        group = PersistenceGroup("group-0", tuple(server.address for server in self.servers))
        await self.cpo.put_persistence_cluster(PersistenceCluster("c", (group,)))
        log = RedisDataLog(0, owner, self.cpo, "c", clock=self._clock)
        await log.initialize()
        return log

    @contextlib.asynccontextmanager
    async def followed(self, without: SimulatedRedis) -> AsyncIterator[RedisDataLog]:
        """A later owner, which never reaches one of the servers; others do, over the connections that they have."""
        self.network.unreachable.add(without.address)
        log = await self.opened("following")
        yield log
        await self._clock.sleep(2 * PlogSettings().connect_timeout_s)  # what still waits for that server gives up
        await log.close()
        self.network.unreachable.clear()


Case = Callable[[World], Awaitable[RedisDataLog]]
"""Lets a log be overtaken; returns it."""


async def overtaken_with_an_empty_plog(world: World) -> RedisDataLog:
    """The later owner frees the plog at once: nothing is in it."""
    late = await world.opened("late")
    async with world.followed(without=world.servers[2]):
        return late


async def overtaken_with_a_truncated_plog(world: World) -> RedisDataLog:
    """The later owner reads the plog, and frees it with a truncation."""
    late = await world.opened("late")
    await late.append([b"frame"])
    async with world.followed(without=world.servers[2]) as following:
        assert [bytes(entry.payload) for entry in await read_entries(following)] == [b"frame"]
        await following.truncate(await following.append([b"checkpoint"]))
    return late


async def overtaken_and_a_server_comes_back_older(world: World) -> RedisDataLog:
    """The one server that remembers the later owner's fence is out of reach; the other one lost it in a restart."""
    late = await world.opened("late")
    await late.append([b"frame"])
    before_s = world.now_s()
    async with world.followed(without=world.servers[2]):
        pass
    world.servers[0].crash()
    world.servers[1].crash()
    assert world.servers[1].start(before_s) > 0
    return late


@pytest.mark.parametrize(
    ("overtaken", "acknowledged"),
    [
        (overtaken_with_an_empty_plog, []),
        (overtaken_with_a_truncated_plog, [b"checkpoint"]),
        (overtaken_and_a_server_comes_back_older, [b"frame"]),
    ],
)
def test_an_owner_that_was_overtaken_acknowledges_nothing_that_it_finds_in_a_hand_over(
    overtaken: Case, acknowledged: list[bytes]
) -> None:
    loop = VirtualLoop()
    loop.network = network = Network(loop, random.Random(1))

    async def run() -> None:
        world = World(loop, network)
        late = await overtaken(world)
        for connection in network.connections:
            if connection.server is world.servers[2]:
                connection.silence()  # it takes the append, and its answer is lost
        with pytest.raises((Fenced, UnknownOutcome)):
            await late.append([b"too late"])
        for server in world.servers:
            server.start()
        last = await world.opened("last")
        assert [bytes(entry.payload) for entry in await read_entries(last)] == acknowledged
        await close_all(late, last)

    loop.run_until_complete(run())
    loop.close()
