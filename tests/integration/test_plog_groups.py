"""One log whose plogs are in several persistence groups, each a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.services.cluster.cpo import PersistenceGroup
from pravega_common.services.cluster.redis_audit import memory_of
from segment_service.contracts.data_log import LogEntry
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.plog.cluster_registration import ask_redis, register_groups
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, close_all, read_entries, write_frames
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis

SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0)
FRAME = 100_000


class TwoGroups:
    """A log over the groups ``a`` and ``b``."""

    def __init__(self, a: RedisServer, b: RedisServer) -> None:
        self.servers = {"a": a, "b": b}
        self.groups = [PersistenceGroup(name, (server.address,)) for name, server in self.servers.items()]
        self.choice = ChoiceByUse(self.groups)
        self.cpo = InMemoryCPO()
        self.logs: list[RedisDataLog] = []

    async def open(self) -> RedisDataLog:
        self.choice.saw(await register_groups(self.cpo, "test", self.groups, ask_redis))
        log = RedisDataLog(1, f"store-{len(self.logs)}", self.cpo, "test", SETTINGS, choice=self.choice)
        self.logs.append(log)
        await log.initialize()
        return log

    def sample(self) -> None:
        for server in self.servers.values():
            self.choice.memory[server.address] = memory_of(server.call("INFO", "memory").decode())

    async def open_beside(self, name: str, used_bytes: int) -> RedisDataLog:
        """Let something else use memory of a group, so that the log goes to the other one."""
        self.servers[name].call("SET", "other", "x" * used_bytes)
        self.sample()
        return await self.open()

    def plogs(self, name: str) -> int:
        return int(self.servers[name].call("SCARD", "pravega:plog:index:1").removeprefix(b":"))


@pytest.fixture
async def world(own_redis: RedisServer, tmp_path: Path) -> AsyncIterator[TwoGroups]:
    with running_redis(tmp_path / "second") as second:
        world = TwoGroups(own_redis, second)
        yield world
        await close_all(*world.logs)


async def test_plogs_are_spread_over_the_groups_by_use(world: TwoGroups) -> None:
    log = await world.open_beside("a", 10_000_000)
    history = WriterHistory(0)
    await write_frames(log, history, 60, sizes=(FRAME,))
    assert (history.error, world.plogs("a")) == (None, 0), "the fuller server gets none"
    world.choice.memory.clear()
    await write_frames(log, history, 100, sizes=(FRAME,))
    assert world.plogs("a") > 1 and world.plogs("b") > 1
    check_history(await read_entries(await world.open()), [history])


async def test_a_full_group_is_left_for_one_that_has_room(world: TwoGroups) -> None:
    log = await world.open_beside("b", 20_000_000)
    history = WriterHistory(0)
    await write_frames(log, history, 5, sizes=(FRAME,))
    assert world.plogs("b") == 0
    used = memory_of(world.servers["a"].call("INFO", "memory").decode()).used
    world.servers["a"].call("CONFIG", "SET", "maxmemory", str(used))
    world.sample()
    async with asyncio.timeout(20):
        await write_frames(log, history, 60, sizes=(FRAME,))
    assert history.error is None and len(history.acked) == 65
    assert world.plogs("b") > 0 and not log.is_full
    check_history(await read_entries(await world.open()), [history])


async def test_a_log_lives_through_the_restart_of_the_server_of_its_spare(world: TwoGroups) -> None:
    log = await world.open()
    history = WriterHistory(0)
    for server in world.servers.values():
        await asyncio.to_thread(server.restart_after_kill)
        await write_frames(log, history, 60, sizes=(FRAME,))
    assert (history.error, len(history.acked)) == (None, 120)
    check_history(await read_entries(await world.open()), [history])


async def test_a_log_is_healed_while_the_group_of_its_spare_is_away(world: TwoGroups) -> None:
    log = await world.open_beside("b", 20_000_000)
    a = world.servers["a"]
    stream = log._stream  # its spare shows nowhere else
    assert stream is not None
    await eventually(lambda: stream._supply.spare is not None, "a spare")
    first = stream._supply.spare
    world.servers["b"].call("DEL", "other")
    a.call("SET", "other", "x" * 40_000_000)
    world.sample()
    history = WriterHistory(0)
    while stream._supply.spare is first or stream._supply.spare is None:
        await write_frames(log, history, 1, sizes=(FRAME,))
    assert stream._supply.spare.plog.plog_id.group == "b" and world.plogs("b") == 1
    world.servers["b"].kill()
    del world.choice.memory[world.servers["b"].address]
    await asyncio.to_thread(a.restart_after_kill)
    async with asyncio.timeout(SETTINGS.heal_time_max_s):
        await write_frames(log, history, 20, sizes=(FRAME,))
    assert history.error is None
    check_history(await read_entries(await world.open()), [history])


async def test_a_group_that_the_settings_no_longer_name_is_read_and_gets_nothing(world: TwoGroups) -> None:
    log = await world.open()
    history = WriterHistory(0)
    await write_frames(log, history, 60, sizes=(FRAME,))
    before = set(_members(world, "a"))
    assert before
    world.groups = world.groups[1:]
    world.choice = ChoiceByUse(world.groups)
    again = await world.open()
    entries = await read_entries(again)
    check_history(entries, [history])
    more = WriterHistory(1)
    await write_frames(again, more, 60, sizes=(FRAME,))
    assert set(_members(world, "a")) <= before
    await again.truncate(more.acked[50])
    assert _members(world, "a") == [], "it is empty once what it held is truncated"
    world.servers["a"].kill()
    assert await read_entries(await world.open()), "its server may go then"
    assert world.logs[-1].groups == {"b"}


async def test_a_server_that_lost_what_is_truncated_ends_no_log(world: TwoGroups) -> None:
    history = WriterHistory(0)
    await write_frames(await world.open(), history, 30, sizes=(FRAME,))
    assert _members(world, "a")
    world.groups = world.groups[1:]
    world.choice = ChoiceByUse(world.groups)
    log = await world.open()
    more = WriterHistory(1)
    await write_frames(log, more, 60, sizes=(FRAME,))
    world.servers["a"].call("FLUSHALL")
    await asyncio.to_thread(world.servers["a"].restart_after_kill)
    await log.truncate(more.acked[50])
    await write_frames(log, more, 5, sizes=(FRAME,))
    assert (more.error, len(more.acked)) == (None, 65)
    assert len(await read_entries(await world.open())) == 15


async def test_a_group_that_the_settings_no_longer_name_is_no_loss_to_who_reads_the_log(world: TwoGroups) -> None:
    """The doctor and a backup know the groups of the settings alone."""

    async def read(groups: list[PersistenceGroup]) -> list[LogEntry]:
        return [entry async for entry in RedisLogSource(groups, 2, SETTINGS).read(1)]

    log = await world.open()
    history = WriterHistory(0)
    await write_frames(log, history, 60, sizes=(FRAME,))
    all_groups, world.groups = world.groups, world.groups[1:]
    world.choice = ChoiceByUse(world.groups)
    await world.open()
    with pytest.raises(ConfigurationError, match=r"in group a.*tier1\.groups"):
        await read(world.groups)
    check_history(await read(all_groups), [history])


async def test_a_log_starts_while_a_group_that_has_nothing_of_it_is_away(world: TwoGroups) -> None:
    log = await world.open_beside("b", 20_000_000)
    history = WriterHistory(0)
    await write_frames(log, history, 30, sizes=(FRAME,))
    assert (history.error, world.plogs("b")) == (None, 0)
    world.servers["b"].kill()
    del world.choice.memory[world.servers["b"].address]
    again = await world.open()
    check_history(await read_entries(again), [history])
    world.servers["a"].kill()
    with pytest.raises(Unavailable):
        await world.open()


async def goes_on_without_b(world: TwoGroups, log: RedisDataLog, history: WriterHistory) -> None:
    """The group ``b`` loses its data, and everything that is written then is acknowledged."""
    before = len(history.acked)
    world.servers["b"].call("FLUSHALL")
    await asyncio.to_thread(world.servers["b"].restart_after_kill)
    world.sample()
    async with asyncio.timeout(4 * SETTINGS.heal_time_max_s):
        await write_frames(log, history, 60, sizes=(FRAME,))
    assert (before, history.error, len(history.acked)) == (5, None, 65)


async def test_a_group_that_lost_its_data_holds_up_no_log_of_others(world: TwoGroups) -> None:
    """It is empty, so it would be the first choice for each new plog, and it takes none until an operator acts."""
    history = WriterHistory(0)
    log = await world.open_beside("b", 20_000_000)
    await write_frames(log, history, 5, sizes=(FRAME,))
    assert (history.error, world.plogs("b")) == (None, 0)
    await goes_on_without_b(world, log, history)
    again = await world.open()
    check_history(await read_entries(again), [history])


async def test_a_log_survives_the_loss_of_a_group_that_had_its_records_alone(world: TwoGroups) -> None:
    """Its owner knows them all, and no frame is lost: it records them again, in another group."""
    history = WriterHistory(0)
    log = await world.open_beside("b", 20_000_000)
    await write_frames(log, history, 5, sizes=(FRAME,))
    manager = log._required_manager()  # which group its next plog goes to shows nowhere else
    world.choice._expected_bytes["a"] = 1e9
    await manager.start_plog(manager.state)
    assert manager.open_plog is not None and manager.open_plog.plog_id.group == "b"
    world.choice._expected_bytes.clear()
    await goes_on_without_b(world, log, history)
    await log.check_owner()
    check_history(await read_entries(await world.open()), [history])


def _members(world: TwoGroups, name: str) -> list[PlogId]:
    answer = world.servers[name].call("SMEMBERS", "pravega:plog:index:1").split(b"\r\n")
    return [PlogId.parse(text.decode()) for text in answer if b"/" in text]
