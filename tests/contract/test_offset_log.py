"""Runs the contract of ``OffsetLog`` on the fake, on a real Redis and on a group of three.

The log in local files is not there: it serves containers only, which never ask for an offset.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import Fenced, UnknownOutcome
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import frame_bytes_max
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.contract.offset_log_contract import MakeOffsetLog, OffsetLogContract, OwnedLog, fill, numbers
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore
from tests.support.fakes.offset_log import InMemoryOffsetLog
from tests.support.server_fixtures import own_redis_group as own_redis_group
from tests.support.servers import RedisServer

_numbers = itertools.count()


class TestInMemoryOffsetLog(OffsetLogContract):
    @pytest.fixture
    async def make_offset_log(self) -> AsyncIterator[MakeOffsetLog]:
        store = InMemoryLogStore(bytes_per_plog=256 * 1024)
        logs: list[InMemoryDataLog] = []

        async def make() -> OwnedLog:
            log = InMemoryDataLog(1, store)
            await log.initialize()
            logs.append(log)
            return OwnedLog(log, InMemoryOffsetLog(log, store))

        yield make
        for log in logs:
            await log.close()


class TestRedisOffsetLog(OffsetLogContract):
    @pytest.fixture
    def group(self, redis_server: RedisServer) -> PersistenceGroup:
        return PersistenceGroup("g0", (redis_server.address,))

    @pytest.fixture
    async def make_offset_log(self, group: PersistenceGroup) -> AsyncIterator[MakeOffsetLog]:
        cpo = InMemoryCPO()
        await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
        settings = PlogSettings(block_bytes=frame_bytes_max + 128 * 1024, prefix=f"offsets{next(_numbers)}:")
        logs: list[RedisDataLog] = []

        async def make() -> OwnedLog:
            log = RedisDataLog(1, f"owner-{len(logs)}", cpo, "test", settings)
            logs.append(log)
            await log.initialize()
            return OwnedLog(log, log.at_offsets())

        yield make
        for log in logs:
            await log.close()


class TestRedisOffsetLogOnThreeServers(TestRedisOffsetLog):
    # A frame that only the minority has, whom nobody fenced, is unknown.
    zombie_errors = (Fenced, UnknownOutcome)

    @pytest.fixture
    def group(self, redis_group: tuple[RedisServer, ...]) -> PersistenceGroup:
        return PersistenceGroup("g0", tuple(server.address for server in redis_group))


class TestWithServersLost:
    """Reads go on from the copies that are left."""

    @pytest.mark.parametrize("lost", range(3))
    async def test_any_part_is_read_without_one_server(
        self, own_redis_group: tuple[RedisServer, ...], lost: int
    ) -> None:
        cpo = InMemoryCPO()
        group = PersistenceGroup("g0", tuple(server.address for server in own_redis_group))
        await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
        settings = PlogSettings(block_bytes=frame_bytes_max + 128 * 1024, reply_timeout_s=2.0)
        log = RedisDataLog(1, "owner", cpo, "test", settings)
        await log.initialize()
        offsets = log.at_offsets()
        await fill(offsets, 40)
        own_redis_group[lost].kill()
        await fill(offsets, 20)
        assert await numbers(offsets, 0) == list(range(60))
        for offset in range(0, 60, 7):
            found = await numbers(offsets, offset, 200_000)
            assert found == list(range(offset, offset + max(1, len(found))))
        await offsets.truncate_before(33)
        assert await numbers(offsets, 33) == list(range(33, 60))
        await log.close()
