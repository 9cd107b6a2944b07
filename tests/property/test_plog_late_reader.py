"""An owner that is fenced while it reads its log, and whose plogs are freed meanwhile, is fenced; nothing was lost."""

from __future__ import annotations

import random
from typing import cast

import pytest

from pravega_common.errors import Fenced
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from segment_service.plog.redis_log import RedisDataLog
from tests.simulator.network import Network
from tests.simulator.oracle import RemoteCPO
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.virtual_loop import VirtualClock, VirtualLoop
from tests.support.fakes.cpo import InMemoryCPO


async def read_too_late(loop: VirtualLoop, network: Network) -> None:
    server = SimulatedRedis("redis:6379", InMemoryCPO)
    network.servers[server.address] = server
    cpo = cast(ControlPlaneOracle, RemoteCPO(network, server, random.Random(1)))
    await cpo.put_persistence_cluster(PersistenceCluster("c", (PersistenceGroup("group-0", (server.address,)),)))
    first, late, last = (
        RedisDataLog(0, name, cpo, "c", clock=VirtualClock(loop)) for name in ("first", "late", "last")
    )
    await first.initialize()
    for _ in range(3):
        await first.append([b"frame"])
    await late.initialize()
    entries = late.read()
    await anext(entries)
    await last.initialize()
    await last.truncate(await last.append([b"checkpoint"]))
    with pytest.raises(Fenced):
        async for _ in entries:
            pass


def test_a_late_reader_is_fenced() -> None:
    loop = VirtualLoop()
    loop.network = network = Network(loop, random.Random(1))
    loop.run_until_complete(read_too_late(loop, network))
    loop.close()
