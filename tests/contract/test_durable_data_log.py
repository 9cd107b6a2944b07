"""Runs the contract of ``DurableDataLog`` on the fake, on local files, on a real Redis and on a group of three."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import DurableDataLog, frame_bytes_max
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.contract.durable_data_log_contract import DurableDataLogContract, MakeLog
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore
from tests.support.servers import RedisServer, running_redis

_numbers = itertools.count()


class TestInMemoryDataLog(DurableDataLogContract):
    @pytest.fixture
    async def make_log(self) -> AsyncIterator[MakeLog]:
        store = InMemoryLogStore(bytes_per_plog=256 * 1024)
        logs: list[DurableDataLog] = []

        async def make(container_id: int) -> DurableDataLog:
            log = InMemoryDataLog(container_id, store)
            await log.initialize()
            logs.append(log)
            return log

        yield make
        for log in logs:
            await log.close()


class TestFileDataLog(DurableDataLogContract):
    @pytest.fixture
    async def make_log(self, tmp_path: Path) -> AsyncIterator[MakeLog]:
        folder = FileLogFolder(tmp_path / "tier1", plog_bytes=256 * 1024, reserve_bytes=0)
        await folder.start()
        logs: list[DurableDataLog] = []

        async def make(container_id: int) -> DurableDataLog:
            log = FileDataLog(container_id, folder)
            logs.append(log)
            await log.initialize()
            return log

        yield make
        for log in logs:
            await log.close()
        await folder.stop()


class TestRedisDataLog(DurableDataLogContract):
    @pytest.fixture
    def addresses(self, redis_server: RedisServer) -> tuple[str, ...]:
        return (redis_server.address,)

    @pytest.fixture
    async def make_log(self, addresses: tuple[str, ...]) -> AsyncIterator[MakeLog]:
        cpo = InMemoryCPO()
        group = PersistenceGroup("g0", addresses)
        await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
        settings = PlogSettings(block_bytes=frame_bytes_max + 128 * 1024, prefix=f"test{next(_numbers)}:")
        logs: list[DurableDataLog] = []

        async def make(container_id: int) -> DurableDataLog:
            log = RedisDataLog(container_id, f"owner-{len(logs)}", cpo, "test", settings)
            logs.append(log)
            await log.initialize()
            return log

        yield make
        for log in logs:
            await log.close()


class TestRedisDataLogOverTwoGroups(DurableDataLogContract):
    @pytest.fixture
    async def make_log(self, redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[MakeLog]:
        with running_redis(tmp_path / "second") as second:
            cpo = InMemoryCPO()
            groups = PersistenceGroup("g0", (redis_server.address,)), PersistenceGroup("g1", (second.address,))
            await cpo.put_persistence_cluster(PersistenceCluster("test", groups))
            settings = PlogSettings(block_bytes=frame_bytes_max + 128 * 1024, prefix=f"test{next(_numbers)}:")
            choice = ChoiceByUse(groups)
            logs: list[DurableDataLog] = []

            async def make(container_id: int) -> DurableDataLog:
                log = RedisDataLog(container_id, f"owner-{len(logs)}", cpo, "test", settings, choice=choice)
                logs.append(log)
                await log.initialize()
                return log

            yield make
            for log in logs:
                await log.close()


class TestRedisDataLogOnThreeServers(TestRedisDataLog):
    @pytest.fixture
    def addresses(self, redis_group: tuple[RedisServer, ...]) -> tuple[str, ...]:
        return tuple(server.address for server in redis_group)
