"""Clients that come to a new plog server at the same time agree on its identity; none takes it for a lost one."""

from __future__ import annotations

import asyncio
import random

import pytest

from segment_service.plog.plog_client import PlogClient, PlogSettings
from tests.simulator.network import Network
from tests.simulator.oracle import RemoteCPO
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.virtual_loop import VirtualLoop
from tests.support.fakes.cpo import InMemoryCPO


async def connect_together(network: Network, seed: int) -> None:
    server = SimulatedRedis("redis:6379", InMemoryCPO)
    network.servers[server.address] = server
    cpo = RemoteCPO(network, server, random.Random(seed))

    async def identity_of(shown: str | None) -> str | None:
        found: str | None = await (cpo.get_constant("id") if shown is None else cpo.set_once("id", shown))
        return found

    clients = [PlogClient(server.address, PlogSettings(), identity_of) for _ in range(3)]
    assert await asyncio.gather(*(client.list_plogs(0) for client in clients)) == [[], [], []]


@pytest.mark.parametrize("seed", range(30))
def test_clients_of_a_new_server_agree(seed: int) -> None:
    loop = VirtualLoop()
    loop.network = network = Network(loop, random.Random(seed))
    loop.run_until_complete(connect_together(network, seed))
    loop.close()
