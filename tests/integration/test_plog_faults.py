"""Runs the Redis log on a real Redis that is cut off, killed, paused, filled and emptied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from pravega_common.errors import ConfigurationError, DataCorruption, Fenced, PravegaError, Unavailable, UnknownOutcome
from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.maintenance import plog_census
from segment_service.maintenance.log_reading import LogChanged
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.plog.metadata_records import FullRecord
from segment_service.plog.plog_client import PlogSettings, read_page_entries_max
from segment_service.plog.redis_connection import RedisConnection
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import (
    WriterHistory,
    check_history,
    close_all,
    numbered_frame,
    recover,
    shared_cpo,
    write_frames,
)
from tests.support.proxy import CuttingProxy
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.server_fixtures import proxy as proxy
from tests.support.servers import RedisServer, running_redis

SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0, reply_timeout_s=1.0)


async def started(server: RedisServer) -> tuple[InMemoryCPO, RedisDataLog, WriterHistory]:
    """A log without frames on one server, with the CPO that both it and later owners use."""
    cpo = await shared_cpo(server.address)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    return cpo, log, WriterHistory(0)


async def test_a_second_owner_takes_over_while_the_first_writes(own_redis: RedisServer) -> None:
    cpo = await shared_cpo(own_redis.address)
    histories = [WriterHistory(number) for number in range(4)]
    logs = []
    tasks = []
    for history in histories:
        log = RedisDataLog(1, f"store-{history.writer}", cpo, "test", SETTINGS)
        await log.initialize()
        logs.append(log)
        tasks.append(asyncio.create_task(write_frames(log, history, 100_000 if history.writer < 3 else 50)))
        await history.until_acked(40)
    await asyncio.gather(*tasks)
    for history in histories[:3]:
        assert isinstance(history.error, Fenced | UnknownOutcome), history.error
        assert len(history.acked) >= 40
    assert histories[3].error is None
    last, entries = await recover(cpo, SETTINGS)
    check_history(entries, histories)
    await close_all(last, *logs)


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_cut_connection_heals_at_the_same_epoch(proxy: CuttingProxy, swallow: bool) -> None:
    cpo = await shared_cpo(proxy.address)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    writing = asyncio.create_task(write_frames(log, history, 200))
    for acked in (10, 60, 110, 160):
        await history.until_acked(acked)
        proxy.swallow_answers = swallow
        swallowed = proxy.swallowed
        await eventually(lambda swallowed=swallowed: not swallow or proxy.swallowed > swallowed, "an answer")  # type: ignore[misc]
        proxy.cut()
        proxy.swallow_answers = False
    await writing
    assert (history.error, len(history.acked), log.epoch) == (None, 200, 1)
    assert 1 <= log.failures_total <= 4
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    assert len(entries) == 200
    await close_all(log, new)


async def test_answers_that_never_come_are_resolved_by_reading_back(proxy: CuttingProxy) -> None:
    cpo = await shared_cpo(proxy.address)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 5)
    proxy.swallow_answers = True
    writing = asyncio.create_task(write_frames(log, history, 4))
    # All four answers must be lost (a later one would answer an earlier request), and the proxy sees bytes only.
    await asyncio.sleep(0.2)
    assert len(history.acked) == 5
    proxy.swallow_answers = False
    await writing
    assert (history.error, len(history.acked)) == (None, 9)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await close_all(log, new)


async def test_requests_that_arrive_after_the_hand_over_land_nowhere(proxy: CuttingProxy) -> None:
    cpo = await shared_cpo(proxy.address)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 5)
    proxy.hold_requests = True
    writing = asyncio.create_task(write_frames(log, history, 4))
    # All four frames must be held whole, and the proxy sees bytes only.
    await asyncio.sleep(0.05)
    proxy.hold_requests = False
    proxy.cut_clients()
    await writing
    await proxy.deliver_held()
    await write_frames(log, history, 4)
    assert (history.error, len(history.acked)) == (None, 13)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    assert len(entries) == 13
    await close_all(log, new)


async def test_a_log_that_cannot_heal_is_over(proxy: CuttingProxy) -> None:
    cpo = await shared_cpo(proxy.address)
    settings = PlogSettings(block_bytes=1_500_000, heal_time_max_s=0.5)
    log = RedisDataLog(1, "store", cpo, "test", settings)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 5)
    proxy.refuse = True
    proxy.cut()
    await write_frames(log, history, 1)
    assert isinstance(history.error, Unavailable | UnknownOutcome)
    with pytest.raises(PravegaError):
        await log.append([b"later"])
    proxy.refuse = False
    new, entries = await recover(cpo, settings)
    check_history(entries, [history])
    await close_all(log, new)


async def test_redis_killed_under_load_and_restarted(own_redis: RedisServer) -> None:
    cpo, log, history = await started(own_redis)
    writing = asyncio.create_task(write_frames(log, history, 400))
    for acked in (50, 200, 350):
        await history.until_acked(acked)
        own_redis.kill()
        # The log meets a real server's closed port, and signals none of its attempts.
        await asyncio.sleep(0.05)
        await asyncio.to_thread(own_redis.start)
    await writing
    assert (history.error, len(history.acked), log.epoch) == (None, 400, 1)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    assert len(entries) == 400
    await close_all(log, new)


async def test_redis_killed_and_another_owner_recovers(own_redis: RedisServer) -> None:
    cpo, log, history = await started(own_redis)
    writing = asyncio.create_task(write_frames(log, history, 100_000))
    await history.until_acked(100)
    own_redis.kill()
    await log.close()
    await writing
    await asyncio.to_thread(own_redis.start)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await close_all(new)


async def test_a_paused_redis_is_only_slow(own_redis: RedisServer) -> None:
    cpo, log, history = await started(own_redis)
    writing = asyncio.create_task(write_frames(log, history, 100))
    await history.until_acked(20)
    own_redis.pause()
    # Longer than reply_timeout_s on the real clock of a connection: the append becomes unknown.
    await asyncio.sleep(2.0)
    own_redis.resume()
    await writing
    assert (history.error, len(history.acked)) == (None, 100)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await close_all(log, new)


async def test_a_full_redis_can_be_recovered_truncated_and_used_again(own_redis: RedisServer) -> None:
    settings = PlogSettings(block_bytes=1_500_000, heal_time_max_s=1.0)
    cpo = await shared_cpo(own_redis.address)
    log = RedisDataLog(1, "store", cpo, "test", settings)
    await log.initialize()
    own_redis.call("CONFIG", "SET", "maxmemory", 12_000_000)
    history = WriterHistory(0)
    writing = asyncio.create_task(write_frames(log, history, 1000, sizes=(100_000,)))
    # A full server is waited for without a limit: what frees it is the storage writer, which this log has none of.
    await eventually(lambda: log.is_full and len(history.acked) > 50, "a full Redis")
    await log.close()
    await writing
    assert history.error is not None
    new, entries = await recover(cpo, settings)
    check_history(entries, [history])
    await new.truncate(entries[-1].address)
    later = WriterHistory(1)
    await write_frames(new, later, 50, sizes=(100_000,))
    assert later.error is None
    await close_all(log, new)
    last, entries = await recover(cpo, settings)
    assert len(entries) == 51
    await close_all(last)


async def test_a_redis_that_is_full_for_a_while_only_delays(own_redis: RedisServer) -> None:
    cpo, log, history = await started(own_redis)
    await write_frames(log, history, 10)
    own_redis.call("CONFIG", "SET", "maxmemory", 1_000_000)
    writing = asyncio.create_task(write_frames(log, history, 50, sizes=(100, 50_000)))
    # Redis refuses several attempts meanwhile; the log signals none of them.
    await asyncio.sleep(0.5)
    assert len(history.acked) == 10
    own_redis.call("CONFIG", "SET", "maxmemory", 0)
    await writing
    assert (history.error, len(history.acked)) == (None, 60)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await close_all(log, new)


async def test_truncation_frees_whole_plogs(own_redis: RedisServer) -> None:
    cpo, log, history = await started(own_redis)
    await write_frames(log, history, 100, sizes=(200_000,))
    full = int(own_redis.call("DBSIZE").removeprefix(b":"))
    await log.truncate(history.acked[95])
    left = int(own_redis.call("DBSIZE").removeprefix(b":"))
    assert full > 25 and left < 15, (full, left)
    await log.close()
    new, entries = await recover(cpo, SETTINGS)
    assert [entry.address for entry in entries] == [history.acked[number] for number in range(95, 100)]
    await close_all(new)


async def test_a_recovery_of_many_small_frames_takes_turns_with_the_loop(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of 4 MiB may hold 20,000 of them; every log of the store would wait until they are all checked."""
    cpo, log, history = await started(own_redis)
    await write_frames(log, history, 2_000, sizes=(16,), window=256)
    await log.close()
    pages: list[int] = []
    call = RedisConnection.call

    async def noted(connection: RedisConnection, *args: str | int) -> Any:
        reply = await call(connection, *args)
        if args[0] == "XRANGE":
            pages.append(len(reply))
        return reply

    monkeypatch.setattr(RedisConnection, "call", noted)
    new, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    assert max(pages) == read_page_entries_max < len(entries)
    await close_all(new)


async def test_take_overs_leave_no_orphans(own_redis: RedisServer) -> None:
    cpo = await shared_cpo(own_redis.address)
    sizes = []
    for number in range(6):
        log, _ = await recover(cpo, SETTINGS)
        if number == 0:
            await log.append([b"only frame"])
        await log.close()
        sizes.append(int(own_redis.call("DBSIZE").removeprefix(b":")))
    assert sizes[-1] == sizes[2], sizes


async def test_an_emptied_redis_is_lost_not_empty(own_redis: RedisServer) -> None:
    cpo = await shared_cpo(own_redis.address)
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    await log.append([b"acked"])
    own_redis.call("FLUSHALL")
    with pytest.raises((DataCorruption, UnknownOutcome), match="lost"):
        await log.append([b"after the loss"])
    await log.close()
    with pytest.raises(DataCorruption, match="lost its data or was replaced"):
        await recover(cpo, SETTINGS)


async def test_a_cpo_that_forgot_the_container_is_refused(own_redis: RedisServer) -> None:
    log, _ = await recover(await shared_cpo(own_redis.address), SETTINGS)
    await log.append([b"acked"])
    await log.close()
    with pytest.raises(DataCorruption, match="the CPO lost its data"):
        await recover(await shared_cpo(own_redis.address), SETTINGS)


async def test_a_cpo_whose_epochs_went_back_is_caught_up(own_redis: RedisServer) -> None:
    cpo = await shared_cpo(own_redis.address)
    for _ in range(5):
        log, _ = await recover(cpo, SETTINGS)
        await log.append([b"acked"])
        await log.close()
    restored = await shared_cpo(own_redis.address)
    plog = await cpo.get_metadata_plog(1)
    assert plog is not None
    await restored.put_metadata_plog(1, await restored.take_epoch(1, "x"), None, plog)
    log, entries = await recover(restored, SETTINGS)
    assert (log.epoch, len(entries)) == (6, 5)
    await log.close()


async def test_an_unsafe_redis_is_refused(own_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_redis(tmp_path_factory.mktemp("unsafe"), {"appendfsync": "everysec"}) as unsafe:
        cpo = await shared_cpo(unsafe.address)
        with pytest.raises(ConfigurationError, match=r"appendfsync is everysec.*set it to always"):
            await recover(cpo, SETTINGS)
        log, _ = await recover(cpo, PlogSettings(allow_unsafe_redis=True))
        await log.append([numbered_frame(0, 0, 100)])
        await log.close()


async def test_only_commands_of_redis_6_2_are_used(own_redis: RedisServer) -> None:
    cpo = await shared_cpo(own_redis.address)
    log, _ = await recover(cpo, SETTINGS)
    history = WriterHistory(0)
    await write_frames(log, history, 100, sizes=(100_000,))
    await log.truncate(history.acked[90])
    await log.close()
    log, _ = await recover(cpo, SETTINGS)
    await log.close()
    statistics = own_redis.call("INFO", "commandstats").decode()
    names = {line.split(":")[0].removeprefix("cmdstat_") for line in statistics.splitlines() if "calls=" in line}
    assert {"xadd", "evalsha", "xrange"} <= names
    for name in names:
        docs = own_redis.call("COMMAND", "DOCS", name).decode()
        since = docs.split("since\r\n")[1].split("\r\n")[1]
        assert tuple(int(part) for part in since.split(".")[:2]) <= (6, 2), f"{name} is since {since}"


def test_the_log_on_uvloop(own_redis: RedisServer) -> None:
    """The services run on uvloop, whose transports differ."""

    async def scenario() -> None:
        cpo = await shared_cpo(own_redis.address)
        log, _ = await recover(cpo, SETTINGS)
        history = WriterHistory(0)
        await write_frames(log, history, 60, sizes=(1_000_000, 100))
        await asyncio.to_thread(own_redis.restart_after_kill)
        await write_frames(log, history, 20)
        assert (history.error, len(history.acked)) == (None, 80)
        await log.close()
        new, entries = await recover(cpo, SETTINGS)
        check_history(entries, [history])
        await new.close()

    uvloop.run(scenario())


async def test_a_log_that_is_taken_over_while_it_is_looked_at_is_not_lost(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner has other metadata, and deletes those that were listed: they are listed again."""
    cpo, log, history = await started(own_redis)
    await write_frames(log, history, 10)
    metadata, owners = plog_census._Reader._metadata, [log]

    async def taken_over(self: plog_census._Reader, stream: str, where: str) -> FullRecord | None:
        if len(owners) == 1:
            owners.append((await recover(cpo, SETTINGS))[0])
        return await metadata(self, stream, where)

    monkeypatch.setattr(plog_census._Reader, "_metadata", taken_over)
    source = RedisLogSource((PersistenceGroup("g0", (own_redis.address,)),), 2, SETTINGS)
    with pytest.raises(LogChanged):
        _ = [entry async for entry in source.read(1)]
    check_history([entry async for entry in source.read(1)], [history])
    await close_all(*owners)
