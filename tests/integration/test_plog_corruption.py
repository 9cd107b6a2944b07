"""Checks that damage inside a real Redis is detected, named and never replayed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio

from pravega_common.errors import DataCorruption
from segment_service.plog.entry import envelope_bytes
from segment_service.plog.plog import PlogId, PlogKeys
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, recover, shared_cpo, write_frames
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer

SETTINGS = PlogSettings(block_bytes=1_500_000)
Entries = list[tuple[bytes, dict[bytes, bytes]]]


async def stream_of(client: Any, plog_id: PlogId) -> str:
    keys = PlogKeys(SETTINGS.prefix, plog_id)
    epoch, fences = await client.hmget(keys.meta, ["epoch", "fences"])
    return f"{SETTINGS.prefix}{{{plog_id.random}}}:{epoch.decode()}.{fences.decode()}"


async def rewrite(address: str, plog_id: PlogId, change: Callable[[Entries], Entries]) -> None:
    """Replace the entries of a plog's stream, as a faulty disk or hand could."""
    host, _, port = address.rpartition(":")
    client: Any = redis.asyncio.Redis(host=host, port=int(port))
    stream = await stream_of(client, plog_id)
    entries = change(await client.xrange(stream))
    await client.delete(stream)
    for entry_id, fields in entries:
        await client.xadd(stream, fields, id=entry_id)
    await client.aclose()


async def written(server: RedisServer) -> tuple[InMemoryCPO, PlogId, PlogId, WriterHistory]:
    """A closed log with 40 frames; its first data plog and its metadata plog."""
    cpo = await shared_cpo(server.address)
    log, _ = await recover(cpo, SETTINGS)
    history = WriterHistory(0)
    await write_frames(log, history, 40, sizes=(100_000,))
    await log.close()
    log, _ = await recover(cpo, SETTINGS)
    await log.close()
    metadata = await cpo.get_metadata_plog(1)
    assert metadata is not None
    # A log hides its plogs behind addresses, and here one of them is damaged by its id.
    assert log._manager is not None
    first = log._manager.state.streams["data"].plogs[0].plog_id
    return cpo, first, PlogId.parse(metadata), history


def flip(index: int, offset: int) -> Callable[[Entries], Entries]:
    def change(entries: Entries) -> Entries:
        data = bytearray(entries[index][1][b"d"])
        data[offset] ^= 4
        entries[index][1][b"d"] = bytes(data)
        return entries

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip(5, envelope_bytes + 70_000), "entry 4 fails its checksum"),
        (flip(5, 20), "fails its checksum"),
        (lambda entries: entries[:5] + entries[6:], "the entry before it ends at"),
        (lambda entries: entries[:-2], "but was sealed at .*: the server lost data"),
        (lambda entries: [*entries[:5], (entries[5][0], {b"other": b"field"}), *entries[6:]], "is not an append"),
    ],
)
async def test_damaged_data_is_not_replayed(
    own_redis: RedisServer, change: Callable[[Entries], Entries], message: str
) -> None:
    cpo, first, _, history = await written(own_redis)
    await rewrite(own_redis.address, first, change)
    with pytest.raises(DataCorruption, match=message):
        await recover(cpo, SETTINGS)
    assert len(history.acked) == 40


async def found_short(server: RedisServer, *, notes: bool) -> tuple[InMemoryCPO, Callable[[], Awaitable[None]]]:
    """A log whose last frame of three is gone, which its owner noted or not; and what brings the frame back."""
    cpo = await shared_cpo(server.address)
    log, _ = await recover(cpo, SETTINGS)
    for number in range(3):
        await log.append([b"%d" % number])
    assert log._manager is not None
    last = log._manager.state.streams["data"].plogs[-1].plog_id
    await log.close()
    if notes:
        await log.note_loss()
    whole: Entries = []

    def without_last(entries: Entries) -> Entries:
        whole.extend(entries)
        return entries[:-1]

    await rewrite(server.address, last, without_last)
    return cpo, lambda: rewrite(server.address, last, lambda _: whole)


async def test_what_is_left_of_a_log_may_be_consistent(own_redis: RedisServer) -> None:
    cpo, _ = await found_short(own_redis, notes=False)
    log, found = await recover(cpo, SETTINGS)
    assert [bytes(entry.payload) for entry in found] == [b"0", b"1"]
    await log.close()


async def test_a_log_that_is_shorter_than_its_owner_noted_is_refused_until_it_is_whole(own_redis: RedisServer) -> None:
    cpo, bring_back = await found_short(own_redis, notes=True)
    for _ in range(2):
        with pytest.raises(DataCorruption, match="ends at frame 2, but the owner of epoch 1 had acknowledged 3 frames"):
            await recover(cpo, SETTINGS)
    await bring_back()
    log, found = await recover(cpo, SETTINGS)
    assert [bytes(entry.payload) for entry in found] == [b"0", b"1", b"2"]
    await log.close()


async def test_a_log_that_begins_again_is_not_compared_with_the_one_before(own_redis: RedisServer) -> None:
    cpo, _ = await found_short(own_redis, notes=True)
    await RedisDataLog(1, "restore", cpo, "test", SETTINGS).discard(5)
    log, found = await recover(cpo, SETTINGS)
    assert found == []
    await log.append([b"new"])
    await log.close()
    log, found = await recover(cpo, SETTINGS)
    assert [bytes(entry.payload) for entry in found] == [b"new"]
    await log.close()


@pytest.mark.parametrize("change", [flip(1, envelope_bytes + 3), lambda entries: entries[:1]])
async def test_damaged_metadata_stops_the_recovery(
    own_redis: RedisServer, change: Callable[[Entries], Entries]
) -> None:
    cpo, _, metadata, _ = await written(own_redis)
    await rewrite(own_redis.address, metadata, change)
    with pytest.raises(DataCorruption):
        await recover(cpo, SETTINGS)


async def test_the_lost_end_of_an_open_plog_is_noticed(own_redis: RedisServer) -> None:
    """Frames say how many had been acknowledged before them, so a hole in the open plog is no mere unfinished end."""
    cpo = await shared_cpo(own_redis.address)
    log, _ = await recover(cpo, SETTINGS)
    history = WriterHistory(0)
    await write_frames(log, history, 10, sizes=(1_000,))
    # As in ``written``.
    assert log._manager is not None
    last = log._manager.state.streams["data"].last.plog_id
    await log.close()
    await rewrite(own_redis.address, last, lambda entries: entries[:4] + entries[5:])
    with pytest.raises(DataCorruption, match="had been acknowledged: the server lost data"):
        await recover(cpo, SETTINGS)


async def test_a_deleted_plog_is_lost_data(own_redis: RedisServer) -> None:
    cpo, first, _, _ = await written(own_redis)
    for name in own_redis_keys(own_redis, first):
        own_redis.call("DEL", name)
    with pytest.raises(DataCorruption, match="is gone: data was lost"):
        await recover(cpo, SETTINGS)


def own_redis_keys(server: RedisServer, plog_id: PlogId) -> list[str]:
    answer = server.call("KEYS", f"*{plog_id.random}*").decode()
    return [line for line in answer.split("\r\n") if plog_id.random in line]
