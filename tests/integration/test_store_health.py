"""Asks a real store how it is while its Redis is frozen, its Tier 2 is gone, and nothing happens."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pravega_common.services.ports import free_ports
from pravega_common.wire.commands import AppendBlockEnd, AppendSetup, CreateSegment, SegmentCreated, SetupAppend
from segment_service.health.store_health import tier1_answer_max_s, tier2_failing_max_s
from tests.support.eventually import eventually
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer
from tests.support.store_process import CONTAINERS, StoreProcess
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"0123456789abcdef"
slack_s = 20.0


class AskedStore:
    """A store process and its status page."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.page = f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
        self.process = StoreProcess(folder, redis.address, store__metrics=f'"{self.page}"')

    async def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.page}{path}") as answer:
            return answer.status, await answer.json()

    async def is_up(self) -> bool:
        status, answer = await self.ask("/health")
        states = [container["state"] for container in answer["containers"].values()]
        return status == 200 and states == ["running"] * CONTAINERS

    async def problems(self) -> set[str]:
        status, answer = await self.ask("/health/ready")
        assert answer["ready"] == (status == 200)
        stopping = {problem["code"] for problem in answer["problems"] if problem["stops_work"]}
        assert bool(stopping) == (status == 503), answer
        return stopping

    async def until(self, expected: set[str], within_s: float) -> None:
        async def is_so() -> bool:
            return await self.problems() == expected

        await eventually(is_so, f"the problems {expected}", within_s)


@pytest.fixture
async def store(tmp_path: Path, own_redis: RedisServer) -> AsyncIterator[AskedStore]:
    store = AskedStore(tmp_path, own_redis)
    await store.process.start()
    await eventually(store.is_up, "a store with all its containers", slack_s)
    yield store
    await store.process.close()


async def test_an_idle_store_notices_a_frozen_redis_and_its_return(store: AskedStore, own_redis: RedisServer) -> None:
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        # Its lease ends as well: the Redis of this store is the control plane's.
        await store.until({"tier1-silent", "lease-lost"}, tier1_answer_max_s + slack_s)
        assert (await store.ask("/health"))[0] == 503
        assert (await store.ask("/health/live"))[0] == 200, "to start it again would mend nothing"
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    await store.until(set(), slack_s)


@pytest.mark.slow
async def test_a_store_says_that_tier2_is_gone_and_that_it_is_back(store: AskedStore, tmp_path: Path) -> None:
    client = await WireClient.connect(store.process.port)
    client.send(CreateSegment(1, SEGMENT, 0, 0))
    await client.expect(SegmentCreated)
    client.send(SetupAppend(2, WRITER, SEGMENT))
    await client.expect(AppendSetup)
    tier2, away = tmp_path / "tier2", tmp_path / "away"
    tier2.rename(away)
    tier2.write_text("a file is where the folder was")
    client.send(AppendBlockEnd(WRITER, 100, bytes(100), 1, 1, 3))
    await store.until({"tier2-failing"}, tier2_failing_max_s + slack_s)
    tier2.unlink()
    away.rename(tier2)
    await store.until(set(), slack_s)
    await client.close()


async def test_the_page_of_a_hung_store_does_not_answer(store: AskedStore) -> None:
    process = store.process.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
                await session.get(f"http://{store.page}/health/live")
    finally:
        process.send_signal(signal.SIGCONT)
    await store.until(set(), slack_s)
