"""Runs the contract of ``DurableDataLog`` on the fake, on local files, on a real Redis and on a group of three."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pravega_common.errors import Fenced, UnknownOutcome
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import DurableDataLog, frame_bytes_max
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.plog.group_choice import ChoiceByUse, GroupChoice
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
    def groups(self, redis_server: RedisServer) -> tuple[PersistenceGroup, ...]:
        return (PersistenceGroup("g0", (redis_server.address,)),)

    @pytest.fixture
    def choice(self) -> GroupChoice | None:
        return None

    @pytest.fixture
    async def make_log(
        self, groups: tuple[PersistenceGroup, ...], choice: GroupChoice | None
    ) -> AsyncIterator[MakeLog]:
        cpo = InMemoryCPO()
        await cpo.put_persistence_cluster(PersistenceCluster("test", groups))
        settings = PlogSettings(block_bytes=frame_bytes_max + 128 * 1024, prefix=f"test{next(_numbers)}:")
        logs: list[DurableDataLog] = []

        async def make(container_id: int) -> DurableDataLog:
            log = RedisDataLog(container_id, f"owner-{len(logs)}", cpo, "test", settings, choice=choice)
            logs.append(log)
            await log.initialize()
            return log

        yield make
        for log in logs:
            await log.close()


class TestRedisDataLogOverTwoGroups(TestRedisDataLog):
    @pytest.fixture
    def groups(self, redis_server: RedisServer, tmp_path: Path) -> Iterator[tuple[PersistenceGroup, ...]]:
        with running_redis(tmp_path / "second") as second:
            yield PersistenceGroup("g0", (redis_server.address,)), PersistenceGroup("g1", (second.address,))

    @pytest.fixture
    def choice(self, groups: tuple[PersistenceGroup, ...]) -> GroupChoice | None:
        return ChoiceByUse(groups)


class TestRedisDataLogOnThreeServers(TestRedisDataLog):
    # A frame that only the minority has, whom nobody fenced, is unknown.
    zombie_errors = (Fenced, UnknownOutcome)

    @pytest.fixture
    def groups(self, redis_group: tuple[RedisServer, ...]) -> tuple[PersistenceGroup, ...]:
        return (PersistenceGroup("g0", tuple(server.address for server in redis_group)),)
