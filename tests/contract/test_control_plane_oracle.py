"""Runs the contract of ``ControlPlaneOracle`` on the fake and on a real Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from pravega_common.services.cluster.redis_cpo import RedisCPO
from tests.contract.control_plane_oracle_contract import ControlPlaneOracleContract, LetExpire, Pair
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.server_fixtures import redis_server as redis_server
from tests.support.servers import RedisServer

_numbers = itertools.count()


class TestInMemoryCPO(ControlPlaneOracleContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def cpos(self, clock: ManualClock) -> Pair:
        cpo = InMemoryCPO(clock)
        return cpo, cpo

    @pytest.fixture
    def let_expire(self, clock: ManualClock) -> LetExpire:
        return lambda ttl_ms: clock.advance(ttl_ms / 1000)


class TestRedisCPO(ControlPlaneOracleContract):
    @pytest.fixture
    async def cpos(self, redis_server: RedisServer) -> AsyncIterator[Pair]:
        prefix = f"test{next(_numbers)}:"
        one, two = (RedisCPO(redis_server.address, prefix=prefix) for _ in range(2))
        yield one, two
        await one.close()
        await two.close()

    @pytest.fixture
    def let_expire(self) -> LetExpire:
        async def expire(ttl_ms: int) -> None:
            # A lease in a real Redis runs by the clock of its server, which no test can move.
            await asyncio.sleep(ttl_ms / 1000 + 0.02)

        return expire
