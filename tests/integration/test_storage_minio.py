"""Runs containers whose Tier 2 is a real MinIO that is killed, paused and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pravega_common.runtime.clock import SystemClock
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.writer_data_source import FlushingWriter, WriterDataSource
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.storage.chunk_format import checksum_bytes, stored_block_bytes
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.minio import MinioChunkStorage, MinioSettings
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.log_states import some_log
from tests.support.servers import MinioServer, running_minio
from tests.support.tier2_garbage import collect_all

WRITER = WriterConfig(flush_bytes=512 * 1024, flush_age_s=0.05, tick_s=0.01, retry_delay_max_s=0.2)
TRANSACTION = "scope/stream/0.#epoch.0#transaction.%032x"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MinioServer]:
    with running_minio(tmp_path / "minio") as server:
        yield server


class BucketKit(ContainerKit):
    """Remembers Tier 2 of its newest container, which a test sweeps."""

    storage: SegmentStorage

    def write_to_tier2(self, config: WriterConfig | None = None) -> None:
        super().write_to_tier2(config)
        make = self.writer_factory

        def remembering(source: WriterDataSource, storage: SegmentStorage) -> FlushingWriter:
            self.storage = storage
            return make(source, storage)

        self.writer_factory = remembering


@pytest.fixture
async def kit(server: MinioServer) -> AsyncIterator[BucketKit]:
    kit = BucketKit(
        cache_bytes=32 << 20,
        unflushed_bytes_max=4 << 20,
        checkpoints=CheckpointPolicy(operations_max=50, bytes_max=1 << 20),
    )
    kit.write_to_tier2(WRITER)
    chunks = MinioChunkStorage(
        MinioSettings(server.address, server.access_key, server.secret_key, "tier2", call_time_max_s=1.0)
    )
    await chunks.start()
    kit.chunks = FaultyChunkStorage(chunks, random.Random(1), SystemClock())
    yield kit
    await chunks.close()


class Load:
    """Appends with transactions in between, held back as a connection is, and what must come out."""

    def __init__(self, kit: ContainerKit, seed: int) -> None:
        self.kit = kit
        self.rng = random.Random(seed)
        self.written = bytearray()
        self.transactions = 0

    async def run(self, container: SegmentContainer, count: int) -> None:
        for _ in range(count):
            await self.kit.back_pressure.wait_open()
            data = self.rng.randbytes(self.rng.randrange(1, 60_000))
            if self.rng.random() < 0.2:
                self.transactions += 1
                name = TRANSACTION % self.transactions
                await container.create_segment(name)
                await container.append(name, [data])
                await container.merge("s", name)
            else:
                await container.append("s", [data])
            self.written += data


async def flushed(kit: ContainerKit, container: SegmentContainer) -> None:
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything in Tier 2", 60)
    metadata = container.metadata.by_name("s")
    assert metadata is not None
    assert metadata.storage_length == metadata.length


async def test_all_bytes_come_back_from_the_bucket(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    load = Load(kit, 1)
    await load.run(container, 300)
    await flushed(kit, container)
    await container.stop()
    later = await kit.open()
    assert await read_all(later, "s") == load.written
    await later.stop()


async def test_a_killed_server_holds_writers_back_and_loses_nothing(kit: ContainerKit, server: MinioServer) -> None:
    container = await kit.open()
    await container.create_segment("s")
    load = Load(kit, 2)
    await load.run(container, 100)
    server.kill()
    writing = asyncio.create_task(load.run(container, 400))
    await eventually(lambda: not kit.back_pressure.is_open, "back-pressure", 60)
    assert not writing.done()
    server.start()
    await writing
    await flushed(kit, container)
    assert await read_all(container, "s") == load.written
    await container.stop()
    later = await kit.open()
    assert await read_all(later, "s") == load.written
    await later.stop()


async def test_answers_that_never_came_neither_lose_nor_repeat_bytes(kit: BucketKit, server: MinioServer) -> None:
    container = await kit.open()
    await container.create_segment("s")
    load = Load(kit, 3)
    for _ in range(3):
        server.pause()
        writing = asyncio.create_task(load.run(container, 150))
        await eventually(lambda: not kit.back_pressure.is_open, "back-pressure", 60)
        # Longer than a call to a real server may take: puts in flight end without an answer.
        await asyncio.sleep(1.5)
        server.resume()
        await writing
    await flushed(kit, container)
    await container.stop()
    later = await kit.open()
    assert await read_all(later, "s") == load.written
    await flushed(kit, later)
    await nothing_is_left_over(kit, later)
    assert await read_all(later, "s") == load.written
    await later.stop()


async def nothing_is_left_over(kit: BucketKit, container: SegmentContainer) -> None:
    """After a sweep the bucket has no more chunk bytes than the segment, but for their checksums."""
    storage = kit.storage
    assert isinstance(storage, RollingStorage)
    await storage.sweeper.sweep()
    await collect_all(storage)
    lengths = [info.length async for info in kit.chunks.list(storage.layout.chunks)]
    found = sum(length - checksum_bytes * -(-length // stored_block_bytes) for length in lengths)
    metadata = container.metadata.by_name("s")
    assert metadata is not None
    assert found == metadata.length


@pytest.mark.parametrize("kind", ["directory", "minio"])
async def test_a_trickle_does_not_become_a_pile_of_objects(kind: str, server: MinioServer, tmp_path: Path) -> None:
    chunks: ChunkStorage = (
        FilesystemChunkStorage(tmp_path / "tier2")
        if kind == "directory"
        else MinioChunkStorage(MinioSettings(server.address, server.access_key, server.secret_key, "trickle"))
    )
    await chunks.start()
    storage = RollingStorage(chunks, 1, SystemClock())

    async def barrier() -> None:
        """Returns at once, as the barrier of a log that is never fenced."""

    await storage.start(1, barrier, some_log)
    for number in range(300):
        await storage.write(7, number * 10, [b"%010d" % number])
    await eventually(lambda: storage.garbage.deleted_names > 500 and not storage.garbage.waiting_names, "garbage", 30)
    assert len([info async for info in chunks.list(storage.layout.prefix)]) < 40
    assert await storage.read(7, 0, 3_000) == b"".join(b"%010d" % number for number in range(300))
    await storage.close()
    await chunks.close()
