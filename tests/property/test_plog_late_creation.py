"""Tests a creation that reaches a plog server late, when a repair has copied the plog there already."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.plog.plog import FenceToken, PlogHeader, PlogId
from segment_service.plog.plog_client import AppendRefused, PlogClient, PlogSettings
from tests.simulator.network import Network
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.virtual_loop import VirtualLoop
from tests.support.fakes.cpo import InMemoryCPO

header = PlogHeader(PlogId("cluster", "group-0", "ab" * 16), 0, "log", number=1, epoch=3, block_bytes=4096)


def on_a_server(work: Callable[[PlogClient], Awaitable[None]]) -> None:
    loop = VirtualLoop()
    loop.network = network = Network(loop, random.Random(1))
    server = SimulatedRedis("redis:6379", InMemoryCPO)
    network.servers[server.address] = server

    async def accept(shown: str | None) -> str | None:
        return shown

    async def run() -> None:
        await work(PlogClient(server.address, PlogSettings(), accept))

    loop.run_until_complete(asyncio.ensure_future(run(), loop=loop))
    loop.close()


def test_a_copy_of_the_same_plog_refuses_its_late_creation() -> None:
    async def work(client: PlogClient) -> None:
        await client.remake(header, FenceToken(4, 2))
        with pytest.raises(AppendRefused, match="was copied there"):
            await client.create(header)

    on_a_server(work)


def test_another_plog_of_the_same_id_breaks_an_invariant() -> None:
    async def work(client: PlogClient) -> None:
        await client.create(header)
        with pytest.raises(InvariantViolation, match="used twice"):
            await client.create(dataclasses.replace(header, number=2))

    on_a_server(work)
