"""Runs the contract of ``PersistenceGroupClient`` on one real Redis and on three."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.plog.group_contract import PersistenceGroupClient
from segment_service.plog.persistence_group import make_group as new_group
from segment_service.plog.plog_client import PlogSettings
from tests.contract.plog_group_contract import CONTAINER, MakeGroup, PlogGroupContract
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.servers import RedisServer

_numbers = itertools.count()


class TestGroupOfOne(PlogGroupContract):
    @pytest.fixture
    def addresses(self, redis_server: RedisServer) -> tuple[str, ...]:
        return (redis_server.address,)

    @pytest.fixture
    async def make_group(self, addresses: tuple[str, ...]) -> AsyncIterator[MakeGroup]:
        cpo = InMemoryCPO()
        settings = PlogSettings(prefix=f"group{next(_numbers)}:")
        groups: list[PersistenceGroupClient] = []

        def make() -> PersistenceGroupClient:
            groups.append(new_group("test", PersistenceGroup("g0", addresses), settings, cpo, CONTAINER))
            return groups[-1]

        yield make
        for group in groups:
            group.reset()


class TestGroupOfThree(TestGroupOfOne):
    @pytest.fixture
    def addresses(self, redis_group: tuple[RedisServer, ...]) -> tuple[str, ...]:
        return tuple(server.address for server in redis_group)
