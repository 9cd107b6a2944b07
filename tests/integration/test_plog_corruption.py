"""Checks that damage inside a real Redis is detected, named and never replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from pravega_common.errors import DataCorruption
from segment_service.plog.entry import envelope_bytes
from segment_service.plog.plog import PlogId, PlogKeys
from segment_service.plog.plog_client import PlogSettings
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
