"""Kills a store process on a real Redis at every named step, under a writer that resends what it must.

The writer numbers its blocks and learns from each new connection which ones are stored, as clients do. In the end the
segment holds every block once, in order, whatever the store was doing when it died.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    CreateSegment,
    DataAppended,
    ReadSegment,
    SegmentAlreadyExists,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
    WrongHost,
)
from segment_service.durable_log import durable_log, operation_processor
from segment_service.writer import storage_writer
from tests.support.eventually import eventually
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer
from tests.support.store_process import StoreProcess
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"0123456789abcdef"
BLOCK_BYTES = 5_000
GONE = (ConnectionError, OSError, TimeoutError, asyncio.IncompleteReadError)


def block(number: int) -> bytes:
    return b"%08d" % number + bytes(BLOCK_BYTES - 8)


class Writer:
    """Sends numbered blocks, several in flight, over as many connections as it takes."""

    def __init__(self, store: StoreProcess) -> None:
        self.store = store
        self.acknowledged = 0

    async def write_until(self, total: int) -> bool:
        """True once ``total`` blocks are acknowledged, false when the store is gone."""
        try:
            client = await WireClient.connect(self.store.port)
            await self._create(client)
            stored = await self._set_up(client)
            assert stored >= self.acknowledged, "an acknowledged block is gone"
            self.acknowledged = stored
            sent = stored
            while self.acknowledged < total:
                while sent < min(total, self.acknowledged + 40):
                    sent += 1
                    client.send(AppendBlockEnd(WRITER, BLOCK_BYTES, block(sent), 1, sent, sent))
                reply = await client.expect(DataAppended)
                assert reply.previous_event_number <= self.acknowledged < reply.event_number
                self.acknowledged = reply.event_number
        except GONE:
            return False
        return True

    async def _create(self, client: WireClient) -> None:
        async def is_created() -> bool:
            client.send(CreateSegment(1, SEGMENT, 0, 0))
            reply = await client.reply()
            assert isinstance(reply, SegmentCreated | SegmentAlreadyExists | WrongHost), reply
            return not isinstance(reply, WrongHost)

        await eventually(is_created, "a container for the segment")

    async def _set_up(self, client: WireClient) -> int:
        setup = await client.call(SetupAppend(2, WRITER, SEGMENT), AppendSetup)
        return max(0, setup.last_event_number)


async def read_blocks(store: StoreProcess, count: int) -> list[int]:
    client = await WireClient.connect(store.port)
    content = b""
    while len(content) < count * BLOCK_BYTES:
        reply = await client.call(ReadSegment(SEGMENT, len(content), 1 << 20, "", 3), SegmentRead)
        content += bytes(reply.data)
    assert len(content) == count * BLOCK_BYTES
    return [int(content[at : at + 8]) for at in range(0, len(content), BLOCK_BYTES)]


@pytest.fixture
async def store(tmp_path: Path, own_redis: RedisServer) -> AsyncIterator[StoreProcess]:
    store = StoreProcess(tmp_path, own_redis.address)
    yield store
    await store.close()


@pytest.mark.parametrize(
    "failpoint",
    [
        f"{operation_processor.BEFORE_SEND}=kill:20",
        f"{operation_processor.BEFORE_COMMIT}=kill:20",
        f"{operation_processor.BEFORE_ACK}=kill:20",
        f"{durable_log.BEFORE_TRUNCATE}=kill:3",
        f"{storage_writer.BEFORE_ACKNOWLEDGE}=kill:5",
        "writer.stored_before_metadata=kill:4",
        "storage.write.chunk_stored=kill:4",
        "plog.stream.truncate_recorded=kill:1",
    ],
)
async def test_killed_in_the_middle_of_the_load(store: StoreProcess, failpoint: str) -> None:
    writer = Writer(store)
    await store.start(failpoint)
    written = await writer.write_until(4_000)
    assert not written and await store.process.wait() == -9, f"{failpoint} was not reached"  # type: ignore[union-attr]
    await store.start()
    total = writer.acknowledged + 100
    assert await writer.write_until(total), store.log_tail()
    assert await read_blocks(store, total) == list(range(1, total + 1))
    assert await store.stop() == 0


@pytest.mark.parametrize("failpoint", [durable_log.AFTER_FENCE, durable_log.AFTER_RECOVERY])
async def test_killed_in_the_middle_of_a_start(store: StoreProcess, failpoint: str) -> None:
    writer = Writer(store)
    await store.start()
    assert await writer.write_until(200)
    await store.kill()
    await store.start(f"{failpoint}=kill:1")
    assert store.process is not None
    assert await store.process.wait() == -9
    await store.start()
    assert await writer.write_until(300), store.log_tail()
    assert await read_blocks(store, 300) == list(range(1, 301))
    assert await store.stop() == 0


async def test_the_ready_file_is_there_while_the_store_serves(store: StoreProcess) -> None:
    ready = store.folder / "ready.json"
    await store.start()
    assert ready.exists()
    assert await store.stop() == 0
    assert not ready.exists()


async def test_a_number_of_containers_that_changed_is_refused(store: StoreProcess, own_redis: RedisServer) -> None:
    await store.start()
    assert await store.stop() == 0
    other = StoreProcess(store.folder, own_redis.address, store__containers="3")
    with pytest.raises(AssertionError, match="made with 2 containers"):
        await other.start()
    await other.close()
