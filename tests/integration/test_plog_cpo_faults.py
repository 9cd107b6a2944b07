"""Kills, fills and cuts off the server of the Redis oracle, under a log that lives through it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    Fenced,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from segment_service.plog import metadata_manager
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.metadata_records import MetadataRecord
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, read_entries, write_frames
from tests.support.proxy import CuttingProxy
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis

SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0)


async def test_what_was_answered_survives_a_kill(own_redis: RedisServer) -> None:
    cpo = RedisCPO(own_redis.address)
    for _ in range(3):
        await cpo.take_epoch(4, "a")
    await cpo.put_assignment(0, {4: "a"})
    await asyncio.to_thread(own_redis.restart_after_kill)
    assert await cpo.take_epoch(4, "a") == 4
    assert dict((await cpo.get_assignment()).owners) == {4: "a"}
    await cpo.close()


async def test_a_dead_server_is_unavailable_and_comes_back(own_redis: RedisServer) -> None:
    cpo = RedisCPO(own_redis.address)
    await cpo.set_once("a", "b")
    own_redis.kill()
    with pytest.raises(Unavailable, match="CPO at"):
        await cpo.get_constant("a")
    with pytest.raises((Unavailable, UnknownOutcome)):
        await cpo.take_epoch(1, "x")
    await asyncio.to_thread(own_redis.start)
    assert await cpo.get_constant("a") == "b"
    await cpo.close()


async def test_a_lost_answer_to_a_change_is_unknown(own_redis: RedisServer) -> None:
    proxy = CuttingProxy(own_redis.address)
    await proxy.start()
    cpo = RedisCPO(proxy.address)
    assert await cpo.take_epoch(1, "x") == 1
    proxy.swallow_answers = True
    taking = asyncio.create_task(cpo.take_epoch(1, "x"))
    await eventually(lambda: proxy.swallowed > 0, "the answer")
    proxy.cut()
    with pytest.raises(UnknownOutcome, match="did not answer"):
        await taking
    proxy.swallow_answers = False
    assert await cpo.take_epoch(1, "x") == 3
    await cpo.close()
    await proxy.stop()


async def test_an_unsafe_cpo_is_refused(tmp_path: Path) -> None:
    with running_redis(tmp_path, {"appendonly": "no"}) as unsafe:
        cpo = RedisCPO(unsafe.address)
        with pytest.raises(ConfigurationError, match="appendonly is no"):
            await cpo.set_once("a", "b")
        await cpo.close()
        cpo = RedisCPO(unsafe.address, allow_unsafe_redis=True)
        assert await cpo.set_once("a", "b") == "b"
        await cpo.close()


async def test_losing_the_cpo_stops_no_log(own_redis: RedisServer, tmp_path: Path) -> None:
    with running_redis(tmp_path / "cpo") as oracle:
        cpo = RedisCPO(oracle.address)
        await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("g0", (own_redis.address,)),)))
        log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
        await log.initialize()
        history = WriterHistory(0)
        await write_frames(log, history, 10)
        oracle.kill()
        await write_frames(log, history, 100, sizes=(200_000,))
        await asyncio.to_thread(own_redis.restart_after_kill)
        await write_frames(log, history, 10)
        assert (history.error, len(history.acked)) == (None, 120)
        await asyncio.to_thread(oracle.start)
        new = RedisDataLog(1, "store", cpo, "test", SETTINGS)
        await new.initialize()
        check_history(await read_entries(new), [history])
        await log.close()
        await new.close()
        await cpo.close()


class ForgetfulCPO(InMemoryCPO):
    """Registers metadata plogs without an answer while ``is_silent``."""

    is_silent = False

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        await super().put_metadata_plog(container_id, epoch, expected, plog_id)
        if self.is_silent:
            raise UnknownOutcome("no answer")


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_an_owner_in_doubt_about_its_metadata_plog_makes_sure(
    own_redis: RedisServer, is_taken_over: bool
) -> None:
    """The plog that it last knew is not the one that a later owner fences."""
    cpo = ForgetfulCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("group-0", (own_redis.address,)),)))
    log = RedisDataLog(1, "old", cpo, "test", SETTINGS)
    await log.initialize()
    await log.append([b"acked"])
    known = await cpo.get_metadata_plog(1)
    cpo.is_silent = True
    manager = log._manager
    assert manager is not None  # private: a metadata plog is replaced when it is full, or lost an append
    with pytest.raises((UnknownOutcome, VersionConflict)):
        await manager.start_plog(manager.state)
    cpo.is_silent = False
    assert await cpo.get_metadata_plog(1) != known
    later = RedisDataLog(1, "new", cpo, "test", SETTINGS)
    if is_taken_over:
        await later.initialize()
        with pytest.raises(Fenced):
            await log.check_owner()
    else:
        await log.check_owner()
        await later.initialize()
    assert [bytes(entry.payload) async for entry in later.read()] == [b"acked"]
    await log.close()
    await later.close()


class DeafCPO(InMemoryCPO):
    """Gives no answer to what registers a metadata plog, and does not do it yet, while ``is_deaf``."""

    is_deaf = False

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        if self.is_deaf:
            raise UnknownOutcome("no answer")
        await super().put_metadata_plog(container_id, epoch, expected, plog_id)


@pytest.mark.parametrize("lands", ["none", "first", "last"])
async def test_metadata_plogs_that_may_be_registered_are_few_and_none_is_forgotten(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, lands: str
) -> None:
    """Also the first of those without an answer may be registered, at any time until another one is for certain."""
    monkeypatch.setattr(metadata_manager, "register_attempts_max", 1)
    monkeypatch.setattr(metadata_manager, "doubtful_plogs_max", 8)
    monkeypatch.setattr(metadata_manager, "candidates_max", 16)
    cpo = DeafCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("group-0", (own_redis.address,)),)))
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    manager = log._manager
    assert manager is not None  # private: a metadata plog is replaced when it is full, or lost an append
    for _ in range(30):
        await manager.start_plog(manager.state)
    assert len(manager._candidates) == 16
    registered = await cpo.get_metadata_plog(1)
    group = log._required_client().groups[0]
    before = len(await group.list_plogs(1))
    cpo.is_deaf = True
    for _ in range(30):
        with pytest.raises(UnknownOutcome):
            await manager.start_plog(manager.state)
    assert len(manager._candidates) == 16
    assert len(await group.list_plogs(1)) == before + 8, "plogs pile up while the CPO is away"
    cpo.is_deaf = False
    if lands != "none":
        doubtful = list(manager._candidates)[-8:]
        await cpo.put_metadata_plog(1, log.epoch, registered, doubtful[0 if lands == "first" else -1])
    monkeypatch.setattr(metadata_manager, "register_attempts_max", 5)
    await log.check_owner()
    assert str(manager._registered) == await cpo.get_metadata_plog(1)
    assert len(await group.list_plogs(1)) <= before, "what was in doubt pile up"
    await log.append([b"acked"])
    later = RedisDataLog(1, "later", cpo, "test", SETTINGS)
    await later.initialize()
    with pytest.raises(Fenced):
        await log.check_owner()
    assert [bytes(entry.payload) async for entry in later.read()] == [b"acked"]
    assert len(await later._required_client().groups[0].list_plogs(1)) <= 4
    await log.close()
    await later.close()


async def test_plogs_of_a_log_that_is_taken_over_again_and_again_have_an_end(own_redis: RedisServer) -> None:
    """What the owners before left, also those that were never stopped, is deleted by the next one."""
    cpo = InMemoryCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("group-0", (own_redis.address,)),)))
    owners: list[RedisDataLog] = []
    for number in range(12):
        log = RedisDataLog(1, f"store-{number}", cpo, "test", SETTINGS)
        await log.initialize()
        owners.append(log)
        if number % 3:  # others wrote nothing
            await log.truncate(await log.append([b"a checkpoint"]))
        if number % 2:
            await log.close()
        supply = log._required_stream()._supply  # private: the plog that is made ahead
        if number % 2 == 0:
            await eventually(lambda made=supply: made.spare is not None)  # type: ignore[misc]
        plogs = await log._required_client().groups[0].list_plogs(1)
        assert len(plogs) <= 6, f"{len(plogs)} plogs after {number + 1} owners"
    for log in owners[::2]:
        await log.close()


async def test_plogs_of_hand_overs_that_could_not_be_recorded_have_an_end(own_redis: RedisServer) -> None:
    cpo = InMemoryCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("group-0", (own_redis.address,)),)))
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    manager, stream = log._required_manager(), log._required_stream()
    group = log._required_client().groups[0]
    for number in range(5):
        record, failures = manager.record, 4

        async def failing(made: MetadataRecord) -> None:
            nonlocal failures
            failures -= 1
            if failures < 0:
                return await record(made)  # noqa: B023 - ends before the next turn
            raise Unavailable("no answer")

        manager.record = failing  # type: ignore[method-assign, assignment]
        stream._broken = True  # private: as after an append without an answer
        stream._wake.set()
        await log.append([b"acked"])
        manager.record = record  # type: ignore[method-assign]
        await eventually(lambda: stream._supply.spare is not None)
        plogs = await group.list_plogs(1)
        assert len(plogs) <= 3 + number + 1, f"{len(plogs)} plogs after {number + 1} hand-overs"
    await log.close()


class OlderCPO(InMemoryCPO):
    """Shows what it showed at the time of ``keep``, once it ``comes_back``."""

    def keep(self) -> None:
        self.kept = dict(self._metadata_plogs)

    def comes_back(self) -> None:
        self._metadata_plogs = self.kept


async def test_a_cpo_that_came_back_older_loses_no_frames(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata plog that it names was replaced since, and is there yet: a server missed its deletion, or came back
    older as well. It knows nothing of the plogs in which the log went on."""

    async def missed(self: object, plog_ids: object) -> None: ...

    monkeypatch.setattr(MetadataManager, "_delete_old", missed)
    cpo = OlderCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("group-0", (own_redis.address,)),)))
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 20, sizes=(200_000,))
    cpo.keep()
    manager = log._required_manager()
    await manager.start_plog(manager.state)
    await write_frames(log, history, 40, sizes=(200_000,))
    await log.close()
    newest = dict(cpo._metadata_plogs)
    cpo.comes_back()
    older = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    with pytest.raises(DataCorruption, match="an older copy of the CPO came back"):
        await older.initialize()
    await older.close()
    cpo._metadata_plogs = newest
    whole = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await whole.initialize()
    check_history(await read_entries(whole), [history])
    await whole.close()
