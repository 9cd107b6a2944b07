"""Servers of a group of three come back behind or empty; the owner of the log repairs and admits them."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption, Fenced, Unavailable
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import Replication
from segment_service.plog import log_stream, metadata_manager, repair
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from segment_service.plog.repair import LogRepair
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, close_all, recover, write_frames
from tests.support.server_fixtures import own_redis_group as own_redis_group
from tests.support.servers import RedisServer

Servers = tuple[RedisServer, ...]
SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0, reply_timeout_s=2.0)
FRAME = 100_000
repaired_max_s = 30.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "look_s", 0.1)
    monkeypatch.setattr(log_stream, "rejoin_pause_s", 0.1)
    monkeypatch.setattr(metadata_manager, "rejoin_pause_s", 0.1)


async def started(servers: Servers) -> tuple[InMemoryCPO, RedisDataLog, WriterHistory]:
    """A log with a few sealed plogs on all three servers."""
    cpo = InMemoryCPO()
    group = PersistenceGroup("g0", tuple(server.address for server in servers))
    await cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 50, sizes=(FRAME,))
    return cpo, log, history


def repair_of(log: RedisDataLog) -> LogRepair:
    assert log.repair is not None
    return log.repair


async def wipe(server: RedisServer) -> None:
    server.kill()
    shutil.rmtree(server.folder)
    server.folder.mkdir()
    await asyncio.to_thread(server.start)


async def repaired(log: RedisDataLog) -> None:
    def is_done() -> bool:
        return not repair_of(log).servers_out and repair_of(log).under_replicated_plogs == 0

    await eventually(is_done, "the repair", repaired_max_s)


def plogs_on(server: RedisServer) -> set[bytes]:
    return {line for line in server.call("SMEMBERS", "pravega:plog:index:1").split(b"\r\n") if b"/" in line}


async def check_recovered(cpo: InMemoryCPO, histories: list[WriterHistory]) -> None:
    log, entries = await recover(cpo, SETTINGS)
    check_history(entries, histories)
    await log.close()


@pytest.mark.parametrize("first", range(3))
async def test_a_server_that_came_back_empty_is_filled_and_another_may_be_lost(
    own_redis_group: Servers, first: int
) -> None:
    cpo, log, history = await started(own_redis_group)
    emptied, second = own_redis_group[first], own_redis_group[(first + 1) % 3]
    writing = asyncio.create_task(write_frames(log, history, 100, sizes=(FRAME,)))
    await history.until_acked(80)
    await wipe(emptied)
    await writing

    async def is_on_record() -> bool:
        return await cpo.get_constant(f"plog-server/test/g0/{first}/1") is not None

    await eventually(is_on_record, "the new identity on record", repaired_max_s)
    await repaired(log)
    assert repair_of(log).copied_bytes > 5_000_000
    await write_frames(log, history, 30, sizes=(FRAME,))
    await repaired(log)
    second.kill()
    await write_frames(log, history, 30, sizes=(FRAME,))
    assert (history.error, len(history.acked), log.epoch) == (None, 210, 1)
    await log.close()
    await check_recovered(cpo, [history])


STEPS = sorted(name for name in failpoints.KNOWN if name.startswith("plog.repair.") and name != repair.SERVER_MOVED)
"""Without the one of a replacement, which is in ``test_plog_replace_server.py``."""


@pytest.mark.parametrize("name", STEPS)
async def test_the_next_owner_goes_on_with_a_repair_that_stopped(own_redis_group: Servers, name: str) -> None:
    """The repair ends at a failpoint, as if its process had died there."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        raise asyncio.CancelledError

    failpoints.arm(name, stop)
    try:
        await wipe(own_redis_group[0])
        await asyncio.wait_for(stopped.wait(), repaired_max_s)
    finally:
        failpoints.disarm_all()
    await write_frames(log, history, 10, sizes=(FRAME,))
    await log.close()
    following, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await repaired(following)
    own_redis_group[1].kill()
    after = WriterHistory(1)
    await write_frames(following, after, 10, sizes=(FRAME,))
    assert after.error is None
    await following.close()
    await check_recovered(cpo, [history, after])


@pytest.mark.parametrize("how", ["slow", "away"])
async def test_what_a_server_missed_of_a_truncation_is_deleted_there(own_redis_group: Servers, how: str) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    behind = own_redis_group[2]
    had = plogs_on(behind)
    if how == "slow":
        behind.pause()
    else:
        behind.kill()
    await log.truncate(history.acked[len(history.acked) - 1])
    if how == "slow":
        behind.resume()
    else:
        await asyncio.to_thread(behind.start)
    assert had - plogs_on(own_redis_group[0]), "some are truncated"
    await eventually(
        lambda: not (plogs_on(behind) & had) - plogs_on(own_redis_group[0]), "they are deleted", repaired_max_s
    )
    await log.close()
    await check_truncated(cpo, history)


async def check_truncated(cpo: InMemoryCPO, history: WriterHistory) -> None:
    log, entries = await recover(cpo, SETTINGS)
    assert entries[-1].address == history.acked[len(history.acked) - 1]
    await log.close()


async def test_an_idle_log_is_repaired_too(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    await wipe(own_redis_group[0])
    await eventually(lambda: bool(log.replication.servers_out), "the loss is seen", repaired_max_s)
    assert list(log.replication.servers_out) == [own_redis_group[0].address]
    await repaired(log)
    assert log.replication == Replication()
    own_redis_group[1].kill()
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_server_that_was_away_gets_the_plogs_that_it_missed(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    away = own_redis_group[2]
    away.kill()
    await write_frames(log, history, 50, sizes=(FRAME,))
    await asyncio.to_thread(away.start)
    await eventually(lambda: repair_of(log).under_replicated_plogs > 0, "sealed plogs are missing", repaired_max_s)
    await repaired(log)
    assert repair_of(log).copied_bytes > 2_000_000
    own_redis_group[0].kill()
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_paused_server_is_out_and_the_majority_goes_on(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    own_redis_group[1].pause()
    try:
        await write_frames(log, history, 100, sizes=(FRAME,))
    finally:
        own_redis_group[1].resume()
    assert (history.error, len(history.acked)) == (None, 150)
    await repaired(log)
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_server_that_came_back_older_gets_what_it_lost(own_redis_group: Servers, tmp_path: Path) -> None:
    """It shows the identity on record, and the owner remembers that it had those plogs."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    older = own_redis_group[2]
    older.kill()
    shutil.copytree(older.folder, tmp_path / "older")
    await asyncio.to_thread(older.start)
    await write_frames(log, history, 50, sizes=(FRAME,))
    await repaired(log)
    older.kill()
    shutil.rmtree(older.folder)
    shutil.copytree(tmp_path / "older", older.folder)
    await asyncio.to_thread(older.start)
    had = plogs_on(older)
    await eventually(lambda: plogs_on(own_redis_group[0]) - had <= plogs_on(older), "the copies", repaired_max_s)
    await repaired(log)
    for server in own_redis_group[:2]:
        await repaired(log)
        await wipe(server)
        await eventually(lambda: bool(repair_of(log).servers_out), "the loss is seen", repaired_max_s)
    await repaired(log)
    await close_all(log)
    await check_recovered(cpo, [history])


@pytest.mark.parametrize("step", [repair.COPY_REPAIRED, repair.PLOGS_COPIED, repair.SERVER_ADMITTED])
async def test_an_interrupted_repair_goes_on(own_redis_group: Servers, step: str) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    await wipe(own_redis_group[0])
    await eventually(lambda: bool(repair_of(log).servers_out), "the loss is seen", repaired_max_s)
    await repaired(log)
    failpoints.disarm_all()
    await write_frames(log, history, 20, sizes=(FRAME,))
    await repaired(log)
    own_redis_group[2].kill()
    await log.close()
    await check_recovered(cpo, [history])


async def test_two_servers_that_lost_their_data_are_never_admitted(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    for server in own_redis_group[:2]:
        server.kill()
    for server in own_redis_group[:2]:
        await wipe(server)
    await eventually(lambda: len(repair_of(log).servers_out) == 2, "the losses are seen", repaired_max_s)
    for _ in range(5):
        await repair_of(log).run_round()
    assert [await cpo.get_constant(f"plog-server/test/g0/{index}/1") for index in range(3)] == [None] * 3
    await close_all(log)
    with pytest.raises((DataCorruption, Unavailable)):
        await recover(cpo, SETTINGS)
    assert len(history.acked) == 50


async def test_well_servers_are_left_alone(own_redis_group: Servers) -> None:
    _, log, _ = await started(own_redis_group)
    await repaired(log)
    before = [commands_of(server) for server in own_redis_group]
    for _ in range(20):
        await repair_of(log).run_round()
    assert [commands_of(server) - 1 for server in own_redis_group] == before
    assert repair_of(log).copied_bytes == 0
    await log.close()


def commands_of(server: RedisServer) -> int:
    lines = server.call("INFO", "stats").decode().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("total_commands_processed"))


async def test_an_owner_that_learns_in_a_repair_that_it_was_fenced_ends(own_redis_group: Servers) -> None:
    """It has nothing to write, and would serve what it knows for as long as nobody told it."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    log.on_failure(lambda error: None if failed.done() else failed.set_result(error))
    later, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await wipe(own_redis_group[0])
    async with asyncio.timeout(repaired_max_s):
        assert isinstance(await failed, Fenced)
    await repaired(later)
    await later.close()
    await close_all(log)


async def test_what_was_truncated_is_not_repaired(own_redis_group: Servers) -> None:
    _, log, history = await started(own_redis_group)
    own_redis_group[0].kill()
    await write_frames(log, history, 50, sizes=(FRAME,))
    await log.truncate(history.acked[95])
    await wipe(own_redis_group[0])
    await repaired(log)
    assert repair_of(log).copied_bytes < 2_000_000
    await log.close()


def keys_of(server: RedisServer, plog_id: PlogId) -> list[str]:
    """The names of what a server has of a plog."""
    lines = server.call("KEYS", f"*{plog_id.random}*").decode().split()
    return sorted(line for line in lines if plog_id.random in line)


def stream_of(server: RedisServer, plog_id: PlogId) -> str:
    """The name of the stream with the entries of a server's copy."""
    (stream,) = [key for key in keys_of(server, plog_id) if not key.endswith(":m")]
    return stream


async def test_a_damaged_copy_that_is_made_new_leaves_nothing_of_the_old_one(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    # A log hides its plogs behind addresses, and here the open one is damaged on a server.
    assert log._manager is not None
    plog_id = log._manager.state.streams["data"].last.plog_id
    damaged = own_redis_group[2]
    stream = stream_of(damaged, plog_id)
    damaged.call("XADD", stream, f"{10**9}-0", "s", "0", "d", "damage")
    await write_frames(log, history, 50, sizes=(FRAME,))
    await repaired(log)
    assert repair_of(log).copied_bytes > 0
    assert [len(keys_of(server, plog_id)) for server in own_redis_group] == [2, 2, 2]
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_recovery_goes_on_reading_a_copy_that_is_repaired_meanwhile(
    own_redis_group: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair renames the copy: only what a later owner renames is lost to a reader."""
    monkeypatch.setattr(repair, "look_s", 3600.0)  # it is run below
    cpo, log, history = await started(own_redis_group)
    own_redis_group[0].kill()
    await write_frames(log, history, 10, sizes=(FRAME,))
    await asyncio.to_thread(own_redis_group[0].start)
    await log.close()
    reader = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await reader.initialize()
    entries = []
    async for entry in reader.read():
        entries.append(entry)
        if len(entries) == 45:  # in the plog of which the first server has a part
            await repair_of(reader).run_round()
    check_history(entries, [history])
    assert repair_of(reader).copied_bytes > 0
    await close_all(reader)


@pytest.mark.parametrize("kind", ["gap", "bytes"])
async def test_a_copy_that_a_reader_found_damaged_is_repaired(own_redis_group: Servers, kind: str) -> None:
    """It is sealed, and so looks well to the repair; the next damage to another copy would be a loss."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    assert log._manager is not None
    plog_id = log._manager.state.streams["data"].plogs[0].plog_id
    await log.close()
    server = own_redis_group[0]
    stream = stream_of(server, plog_id)
    answer = server.call("XRANGE", stream, "(0-1", "+", "COUNT", "1").split(b"\r\n")
    entry_id = next(line for line in answer if line.endswith(b"-0")).decode()
    server.call("XDEL", stream, entry_id)
    if kind == "bytes":
        server.call("DEL", stream)
        server.call("XADD", stream, "0-1", "h", "damage")
        server.call("XADD", stream, entry_id, "s", "0", "d", "?" * int(entry_id.removesuffix("-0")))
    reader, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await eventually(lambda: repair_of(reader).copied_bytes > 0, "the repair", repaired_max_s)
    await repaired(reader)
    await reader.close()
    again, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    assert again._client is not None and not again._client.damaged("g0", 0), "it was read, and is well"
    await again.close()


async def test_a_damaged_copy_of_many_small_frames_is_repaired(own_redis_group: Servers) -> None:
    """Redis takes some thousand arguments of a script, and a plog may hold many more entries behind a gap."""
    cpo, log, history = await started(own_redis_group)
    await write_frames(log, history, 10_000, sizes=(16,), window=256)
    await write_frames(log, history, 20, sizes=(FRAME,))
    await repaired(log)
    assert log._manager is not None
    plogs = log._manager.state.streams["data"].plogs
    _, small = max(
        ((behind.first_sequence - plog.first_sequence, plog) for plog, behind in itertools.pairwise(plogs)),
        key=lambda found: found[0],
    )
    await log.close()
    server = own_redis_group[0]
    stream = stream_of(server, small.plog_id)
    answer = server.call("XRANGE", stream, "(0-1", "+", "COUNT", "1").split(b"\r\n")
    server.call("XDEL", stream, next(line for line in answer if line.endswith(b"-0")).decode())
    reader, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await eventually(lambda: repair_of(reader).copied_bytes > 0, "the repair", repaired_max_s)
    await repaired(reader)
    await reader.close()


async def test_a_damaged_copy_is_kept_while_the_others_do_not_have_it_all(own_redis_group: Servers) -> None:
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    assert log._manager is not None
    plog_id = log._manager.state.streams["data"].plogs[0].plog_id
    await log.close()
    own_redis_group[2].kill()
    lengths = []
    for server, count in zip(own_redis_group[:2], (2, 3), strict=True):
        stream = stream_of(server, plog_id)
        answer = server.call("XRANGE", stream, "(0-1", "+", "COUNT", str(count)).split(b"\r\n")
        server.call("XDEL", stream, [line for line in answer if line.endswith(b"-0")][-1].decode())
        lengths.append(server.call("XLEN", stream))
    reader = RedisDataLog(1, "reader", cpo, "test", SETTINGS)
    await reader.initialize()
    with pytest.raises(Unavailable):
        async for _ in reader.read():
            pass
    with_reason = [server.address for server in own_redis_group]
    await eventually(lambda: list(repair_of(reader).servers_out) == with_reason, "the repair waits", repaired_max_s)
    await reader.close()
    for server, length in zip(own_redis_group[:2], lengths, strict=True):
        stream = stream_of(server, plog_id)
        assert server.call("XLEN", stream) == length
    await asyncio.to_thread(own_redis_group[2].start)
    await check_recovered(cpo, [history])


async def test_two_damaged_copies_of_an_open_plog_are_kept_until_the_third_is_back(own_redis_group: Servers) -> None:
    """Each has what the other lacks: made new, the first of them would take the only copy of it away."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    await write_frames(log, history, 5, sizes=(FRAME,))
    assert log._manager is not None
    plog_id = log._manager.state.streams["data"].last.plog_id
    await log.close()
    own_redis_group[2].kill()
    for server, number in zip(own_redis_group[:2], (1, 2), strict=True):
        overwrite(server, plog_id, number)
    had = [entries_of(server, plog_id) for server in own_redis_group[:2]]
    with pytest.raises(Unavailable, match="nothing was removed"):
        await recover(cpo, SETTINGS)
    assert [entries_of(server, plog_id) for server in own_redis_group[:2]] == had
    await asyncio.to_thread(own_redis_group[2].start)
    await check_recovered(cpo, [history])


async def test_damage_that_the_repair_itself_reads_is_repaired(own_redis_group: Servers) -> None:
    """It fills a server that came back empty, and finds the next one's copy damaged on the way."""
    cpo, log, history = await started(own_redis_group)
    await repaired(log)
    assert log._manager is not None
    plog_id = log._manager.state.streams["data"].plogs[0].plog_id
    overwrite(own_redis_group[1], plog_id, 2)
    assert damaged_entries(own_redis_group[1], plog_id) == 1
    await wipe(own_redis_group[0])
    await eventually(lambda: not damaged_entries(own_redis_group[1], plog_id), "the repair", repaired_max_s)
    await repaired(log)
    await log.close()
    await check_recovered(cpo, [history])


def damaged_entries(server: RedisServer, plog_id: PlogId) -> int:
    """The entries of a copy that ``overwrite`` has put there."""
    stream = stream_of(server, plog_id)
    script = """
local found = 0
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  if string.find(entry[2][#entry[2]], '????????', 1, true) then found = found + 1 end
end
return found"""
    return int(server.call("EVAL", script, "1", stream).removeprefix(b":"))


def entries_of(server: RedisServer, plog_id: PlogId) -> int:
    stream = stream_of(server, plog_id)
    return int(server.call("XLEN", stream).removeprefix(b":"))


def overwrite(server: RedisServer, plog_id: PlogId, number: int) -> None:
    """Puts other bytes into the place of one entry of a copy, of those behind its header; 1 is the first."""
    stream = stream_of(server, plog_id)
    script = """
local entries = redis.call('XRANGE', KEYS[1], '-', '+')
redis.call('DEL', KEYS[1])
for position, entry in ipairs(entries) do
  local fields = entry[2]
  if position == tonumber(ARGV[1]) + 1 then fields[#fields] = string.rep('?', #fields[#fields]) end
  redis.call('XADD', KEYS[1], entry[1], unpack(fields))
end
return #entries"""
    assert int(server.call("EVAL", script, "1", stream, str(number)).removeprefix(b":")) > 3
