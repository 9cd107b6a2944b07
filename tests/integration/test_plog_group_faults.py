"""Runs the Redis log on three real servers of which one is killed, paused, emptied, set back, full or damaged."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption, Fenced, Unavailable
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.plog import log_stream, metadata_manager, repair
from segment_service.plog.append_quorum import OnAppended
from segment_service.plog.group_contract import FencedPlog, OpenPlog
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.metadata_records import FullRecord
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogClient, PlogSettings, ServerPlog
from segment_service.plog.quorum_group import QuorumGroup
from segment_service.plog.redis_connection import ConnectionLost
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, close_all, recover, write_frames
from tests.support.server_fixtures import own_redis_group as own_redis_group
from tests.support.servers import RedisServer

Servers = tuple[RedisServer, ...]
SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0, reply_timeout_s=2.0)


async def group_cpo(servers: Servers) -> InMemoryCPO:
    cpo = InMemoryCPO()
    group = PersistenceGroup("g0", tuple(server.address for server in servers))
    await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
    return cpo


async def started(servers: Servers) -> tuple[InMemoryCPO, RedisDataLog, WriterHistory]:
    """A log with ten frames."""
    cpo = await group_cpo(servers)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 10)
    return cpo, log, history


async def check_recovered(cpo: InMemoryCPO, histories: list[WriterHistory]) -> None:
    log, entries = await recover(cpo, SETTINGS)
    check_history(entries, histories)
    await log.close()


def entries_on(server: RedisServer, plog_id: PlogId) -> int:
    """Entries of the copy of a plog, its header included; 0 without a copy."""
    lines = server.call("KEYS", f"*{plog_id.random}*").decode().split("\r\n")
    streams = [line for line in lines if plog_id.random in line and not line.endswith(":m")]
    return int(server.call("XLEN", streams[0]).removeprefix(b":")) if streams else 0


def plogs_of(log: RedisDataLog) -> list[PlogId]:
    # A log hides its plogs behind addresses, and here they are looked at on each server.
    assert log._manager is not None
    return [plog.plog_id for plog in log._manager.state.streams["data"].plogs]


@pytest.mark.parametrize("which", range(3))
async def test_one_server_killed_under_load_fails_no_append(own_redis_group: Servers, which: int) -> None:
    cpo, log, history = await started(own_redis_group)
    writing = asyncio.create_task(write_frames(log, history, 150))
    await history.until_acked(40)
    own_redis_group[which].kill()
    await history.until_acked(100)
    await asyncio.to_thread(own_redis_group[which].start)
    await writing
    assert (history.error, len(history.acked), log.epoch) == (None, 160, 1)
    await log.close()
    await check_recovered(cpo, [history])


@pytest.mark.parametrize("has_cpo", [True, False])
async def test_a_server_that_is_back_is_in_the_next_plog(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch, has_cpo: bool
) -> None:
    """Also while the CPO is away, to which only a new metadata plog would have to be named."""
    monkeypatch.setattr(log_stream, "rejoin_pause_s", 0.2)
    monkeypatch.setattr(metadata_manager, "rejoin_pause_s", 0.2)
    cpo, log, history = await started(own_redis_group)
    cpo.unavailable = not has_cpo
    own_redis_group[1].kill()
    await write_frames(log, history, 10)
    await log.truncate(LogAddress(0, 0))  # a record of it, which that server has not
    (first,) = plogs_of(log)
    await asyncio.to_thread(own_redis_group[1].start)

    async def switched() -> bool:
        await write_frames(log, history, 1)
        return len(plogs_of(log)) > 1

    for _ in range(100):
        if await switched():
            break
        await asyncio.sleep(0.05)  # the pause before a plog is given up is in real time
    await write_frames(log, history, 10)
    assert history.error is None
    last = plogs_of(log)[-1]
    assert last != first
    await eventually(lambda: len({entries_on(server, last) for server in own_redis_group}) == 1, "three equal copies")
    assert entries_on(own_redis_group[1], last) > 1
    cpo.unavailable = False
    await close_all(log)
    await check_recovered(cpo, [history])


async def test_a_plog_that_gets_full_while_a_rejoin_is_tried_keeps_its_place(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames behind the full plog are in the next one, which must be recorded before a third is taken."""
    asked, answer = asyncio.Event(), asyncio.Event()
    may_rejoin = QuorumGroup.may_rejoin

    async def slow(group: QuorumGroup, plog: OpenPlog) -> bool:
        asked.set()
        await answer.wait()
        return await may_rejoin(group, plog)

    monkeypatch.setattr(log_stream, "rejoin_pause_s", 0.1)
    monkeypatch.setattr(QuorumGroup, "may_rejoin", slow)
    cpo, log, history = await started(own_redis_group)
    own_redis_group[1].kill()
    await write_frames(log, history, 3)
    await asyncio.to_thread(own_redis_group[1].start)
    await asyncio.wait_for(asked.wait(), 10)
    writing = asyncio.create_task(write_frames(log, history, 12, sizes=(200_000,)))
    # A log hides which plog is in use, and the moment between two plogs is what this is about.
    stream = log._stream
    assert stream is not None
    await eventually(lambda: stream._active is not stream._recorded, "the next plog is in use")
    answer.set()
    await asyncio.wait_for(writing, 30)
    await write_frames(log, history, 10)
    await log.close()
    await check_recovered(cpo, [history])


async def test_an_owner_that_is_overtaken_while_it_reads_is_fenced(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the later one freed looks lost to it."""
    cpo, log, history = await started(own_redis_group)
    await log.close()
    late, following = (RedisDataLog(1, name, cpo, "test", SETTINGS) for name in ("late", "following"))
    replay = MetadataManager._replay  # between the fence of the metadata plog and its reading
    overtaken = False

    async def overtaken_replay(manager: MetadataManager, fenced: FencedPlog, plog_id: PlogId) -> tuple[FullRecord, int]:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            await following.initialize()
        return await replay(manager, fenced, plog_id)

    monkeypatch.setattr(MetadataManager, "_replay", overtaken_replay)
    with pytest.raises(Fenced, match="epoch 3 took over"):
        await late.initialize()
    await write_frames(following, history, 10)
    await close_all(late, following)
    await check_recovered(cpo, [history])


async def test_a_paused_server_does_not_slow_the_others(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    own_redis_group[2].pause()
    try:
        await write_frames(log, history, 300, sizes=(64, 5_000, 100_000))
        assert (history.error, len(history.acked)) == (None, 310)
    finally:
        own_redis_group[2].resume()
    await log.close()
    await check_recovered(cpo, [history])


async def test_two_servers_killed_and_one_back_only_delay(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    for server in own_redis_group[:2]:
        server.kill()
    writing = asyncio.create_task(write_frames(log, history, 20))
    # The log meets two closed ports, and signals none of its attempts.
    await asyncio.sleep(0.3)
    assert len(history.acked) == 10
    await asyncio.to_thread(own_redis_group[0].start)
    await writing
    assert (history.error, len(history.acked), log.epoch) == (None, 30, 1)
    await log.close()
    await check_recovered(cpo, [history])


async def test_an_emptied_server_is_lost_and_the_others_go_on(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    own_redis_group[0].kill()
    shutil.rmtree(own_redis_group[0].folder)
    own_redis_group[0].folder.mkdir()
    await asyncio.to_thread(own_redis_group[0].start)
    await write_frames(log, history, 60)
    assert (history.error, len(history.acked)) == (None, 70)
    await log.close()
    for _ in range(2):
        log, entries = await recover(cpo, SETTINGS)
        check_history(entries, [history])
        await log.close()
        assert own_redis_group[0].call("DBSIZE") == b":0", "a lost server was used"


async def test_an_emptied_server_is_admitted_by_the_record_of_its_container(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await log.close()
    own_redis_group[2].call("FLUSHALL")
    own_redis_group[2].call("SET", f"{SETTINGS.prefix}identity", "repaired")
    await cpo.set_once("plog-server/test/g0/2/1", "repaired")
    log, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await log.append([b"after the repair"])
    await eventually(lambda: entries_on(own_redis_group[2], plogs_of(log)[-1]) == 2, "the entry on all servers")
    await log.close()


async def test_two_emptied_servers_are_lost_data(own_redis_group: Servers) -> None:
    cpo, log, _ = await started(own_redis_group)
    await log.close()
    for server in own_redis_group[:2]:
        server.call("FLUSHALL")
    with pytest.raises(DataCorruption, match="lost its data or was replaced"):
        await recover(cpo, SETTINGS)


async def test_a_server_that_came_back_older_hides_nothing(own_redis_group: Servers, tmp_path: Path) -> None:
    cpo, log, history = await started(own_redis_group)
    old = own_redis_group[1]
    old.stop()
    shutil.copytree(old.folder, tmp_path / "older")
    await asyncio.to_thread(old.start)
    await write_frames(log, history, 60)
    await log.close()
    old.kill()
    shutil.rmtree(old.folder)
    shutil.copytree(tmp_path / "older", old.folder)
    await asyncio.to_thread(old.start)
    await check_recovered(cpo, [history])


async def test_an_end_that_a_restarted_server_may_hide_is_waited_for(own_redis_group: Servers) -> None:
    """Two servers answer; one restarted and could have lost what only the third one has beside it."""
    cpo, log, history = await started(own_redis_group)
    await log.close()
    own_redis_group[0].kill()
    own_redis_group[1].restart_after_kill()
    with pytest.raises(Unavailable, match="ran through since it was made"):
        await recover(cpo, SETTINGS)
    await asyncio.to_thread(own_redis_group[0].start)
    await check_recovered(cpo, [history])


async def test_damage_on_one_server_is_read_from_another_and_on_all_it_is_reported(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "look_s", 3600.0)  # it would make the damaged copies new
    cpo, log, history = await started(own_redis_group)
    await log.close()
    log, _ = await recover(cpo, SETTINGS)
    first = plogs_of(log)[0]
    await log.close()
    for number, server in enumerate(own_redis_group):
        damage(server, first)
        if number < 2:
            await check_recovered(cpo, [history])
    with pytest.raises(DataCorruption, match=r"ends at|the entry before it"):
        await recover(cpo, SETTINGS)


def damage(server: RedisServer, plog_id: PlogId) -> None:
    """Remove an entry in the middle of a copy."""
    (stream,) = (
        line
        for line in server.call("KEYS", f"*{plog_id.random}*").decode().split("\r\n")
        if plog_id.random in line and not line.endswith(":m")
    )
    answer = server.call("XRANGE", stream, "(0-1", "+", "COUNT", "1").split(b"\r\n")
    entry_id = next(line for line in answer if line.endswith(b"-0"))
    assert server.call("XDEL", stream, entry_id.decode()) == b":1"


async def test_one_full_server_is_left_behind_and_two_are_waited_for(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    own_redis_group[0].call("CONFIG", "SET", "maxmemory", 1_000_000)
    await write_frames(log, history, 30)
    assert (history.error, len(history.acked)) == (None, 40)
    own_redis_group[1].call("CONFIG", "SET", "maxmemory", 1_000_000)
    writing = asyncio.create_task(write_frames(log, history, 30))
    await eventually(lambda: log.is_full, "a full majority")
    acked = len(history.acked)
    assert acked < 70
    own_redis_group[0].call("CONFIG", "SET", "maxmemory", 0)
    await writing
    assert (history.error, len(history.acked)) == (None, 70)
    await log.close()
    await check_recovered(cpo, [history])


async def test_what_one_server_has_behind_the_end_of_a_plog_is_in_no_reading(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that one server answered, and two lost, goes to the next plog; its first copy stays where it is."""
    cpo, log, history = await started(own_redis_group)
    send, lost_on = PlogClient.append, {server.address for server in own_redis_group[1:]}

    def append(
        self: PlogClient, plog: ServerPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended
    ) -> None:
        if self.address in lost_on:
            lost_on.remove(self.address)
            asyncio.get_running_loop().call_later(0.2, done, ConnectionLost("the answer never came"))
        else:
            send(self, plog, start, frame, size, done)

    monkeypatch.setattr(PlogClient, "append", append)
    await write_frames(log, history, 10, window=1)
    assert (history.error, len(history.acked)) == (None, 20)
    assert log.failures_total == 1
    groups = (PersistenceGroup("g0", tuple(server.address for server in own_redis_group)),)
    read = [entry async for entry in RedisLogSource(groups, 2, SETTINGS).read(1)]
    check_history(read, [history])
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_cancelled_truncation_and_the_record_behind_it_are_not_at_one_place(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that stops cancels its truncation, and lets what waits become durable after that."""
    cpo, log, history = await started(own_redis_group)
    # A log hides its plogs behind addresses, and here one is looked at on a server.
    assert log._manager is not None and log._manager.open_plog is not None
    metadata = log._manager.open_plog.plog_id
    first, *slow = own_redis_group
    entries = entries_on(first, metadata)
    append_small = PlogClient.append_small

    async def connecting(self: PlogClient, plog: ServerPlog, start: int, frame: bytes) -> None:
        if self.address in {server.address for server in slow}:
            await asyncio.Event().wait()
        await append_small(self, plog, start, frame)

    with monkeypatch.context() as patched:
        patched.setattr(PlogClient, "append_small", connecting)
        truncating = asyncio.ensure_future(log.truncate(history.acked[5]))
        await eventually(lambda: entries_on(first, metadata) > entries, "the record on one server")
        truncating.cancel()
        await asyncio.gather(truncating, return_exceptions=True)
    await write_frames(log, history, 14, sizes=(100_000,))
    assert history.acked[23].plog_number == 1
    await log.close()
    slow[0].kill()
    log, found = await recover(cpo, SETTINGS)
    assert [entry.address for entry in found] == [address for _, address in sorted(history.acked.items())]
    await log.close()
