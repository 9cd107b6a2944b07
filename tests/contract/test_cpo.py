"""The control plane oracle contract on the in-memory twin and on a real Redis."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from pravega_common.services.cluster.redis_cpo import RedisCPO
from tests.contract.cpo_suite import CpoSuite, Pair
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.server_fixtures import redis_server as redis_server
from tests.support.servers import RedisServer

_numbers = itertools.count()


class TestInMemoryCpo(CpoSuite):
    @pytest.fixture
    def cpos(self) -> Pair:
        cpo = InMemoryCPO()
        return cpo, cpo


class TestRedisCpo(CpoSuite):
    @pytest.fixture
    async def cpos(self, redis_server: RedisServer) -> AsyncIterator[Pair]:
        prefix = f"test{next(_numbers)}:"
        one, two = (RedisCPO(redis_server.address, prefix=prefix) for _ in range(2))
        yield one, two
        await one.close()
        await two.close()
