"""Says how every ``SegmentStorage`` behaves: Tier 2 as segments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import (
    BadOffset,
    Fenced,
    InvalidArgument,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnsupportedOperation,
)
from pravega_common.runtime.clock import Clock, SystemClock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import StorageState, write_bytes_max
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.log_states import some_log
from tests.support.tier2_garbage import collect_all


async def no_barrier() -> None:
    """Returns at once, as the barrier of a log that is never fenced."""


async def opened(chunks: ChunkStorage, epoch: int, container_id: int = 3, clock: Clock | None = None) -> RollingStorage:
    storage = RollingStorage(chunks, container_id, clock or SystemClock(), background=False)
    await storage.start(epoch, no_barrier, some_log)
    return storage


class SegmentStorageContract:
    """A subclass gives the fixture ``chunks``, started and empty."""

    @pytest.fixture
    async def storage(self, chunks: ChunkStorage) -> AsyncIterator[RollingStorage]:
        storage = await opened(chunks, 1)
        yield storage
        await storage.close()

    async def test_nothing_is_there_at_first(self, storage: RollingStorage) -> None:
        assert await storage.state(7) is None
        with pytest.raises(SegmentNotFound):
            await storage.read(7, 0, 1)
        await storage.truncate(7, 0)
        assert await storage.state(7) is None
        await storage.delete(7)

    async def test_writes_add_up(self, storage: RollingStorage) -> None:
        rng = random.Random(1)
        model = b""
        for _ in range(20):
            data = rng.randbytes(rng.randrange(1, 500))
            await storage.write(7, len(model), [data[:3], memoryview(data)[3:]])
            model += data
        assert await storage.state(7) == StorageState(7, 0, len(model), False)
        assert await storage.read(7, 0, len(model)) == model
        for _ in range(30):
            offset = rng.randrange(len(model))
            length = rng.randrange(len(model) - offset + 1)
            assert await storage.read(7, offset, length) == model[offset : offset + length]

    async def test_a_write_names_the_end(self, storage: RollingStorage) -> None:
        with pytest.raises(BadOffset):
            await storage.write(7, 1, [b"x"])
        await storage.write(7, 0, [b"0123456789"])
        for offset in (0, 9, 11):
            with pytest.raises(BadOffset) as caught:
                await storage.write(7, offset, [b"x"])
            assert caught.value.expected_offset == 10
        with pytest.raises(BadOffset):
            await storage.read(7, 5, 6)
        with pytest.raises(InvalidArgument, match="exceeds"):
            await storage.write(7, 10, [bytes(write_bytes_max), b"x"])
        assert await storage.state(7) == StorageState(7, 0, 10, False)

    async def test_an_empty_write_creates(self, storage: RollingStorage) -> None:
        await storage.write(7, 0, [])
        assert await storage.state(7) == StorageState(7, 0, 0, False)
        assert await storage.read(7, 0, 0) == b""

    async def test_seal(self, storage: RollingStorage) -> None:
        await storage.write(7, 0, [b"abc"])
        for _ in range(2):
            await storage.seal(7)
        await storage.seal(8)
        assert await storage.state(7) == StorageState(7, 0, 3, True)
        assert await storage.state(8) == StorageState(8, 0, 0, True)
        with pytest.raises(SegmentSealed):
            await storage.write(7, 3, [b"d"])
        assert await storage.read(7, 0, 3) == b"abc"

    async def test_truncate(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        for number in range(10):
            await storage.write(7, number * 10, [b"%010d" % number])
        await storage.truncate(7, 35)
        assert await storage.state(7) == StorageState(7, 35, 100, False)
        with pytest.raises(SegmentTruncated) as caught:
            await storage.read(7, 34, 1)
        assert caught.value.start_offset == 35
        assert await storage.read(7, 35, 10) == b"0000300000"
        assert await count(chunks, storage.layout.chunks) == 10
        await collect_all(storage)
        assert await count(chunks, storage.layout.chunks) == 7
        await storage.truncate(7, 20)
        assert await storage.state(7) == StorageState(7, 35, 100, False)
        await storage.truncate(7, 100)
        await storage.write(7, 100, [b"more"])
        assert await storage.state(7) == StorageState(7, 100, 104, False)
        assert await storage.read(7, 100, 4) == b"more"
        await collect_all(storage)
        assert await count(chunks, storage.layout.chunks) == 1

    async def test_truncating_beyond_the_end_skips_bytes(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        await storage.write(7, 0, [b"0123456789"])
        await storage.truncate(7, 25)
        await storage.truncate(8, 5)
        assert await storage.state(7) == StorageState(7, 25, 25, False)
        assert await storage.state(8) == StorageState(8, 5, 5, False)
        await storage.write(7, 25, [b"abc"])
        assert await storage.read(7, 26, 2) == b"bc"
        await collect_all(storage)
        assert await count(chunks, storage.layout.chunks) == 1
        await storage.seal(7)
        with pytest.raises(BadOffset):
            await storage.truncate(7, 29)

    async def test_concat_moves_the_chunks(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        await storage.write(7, 0, [b"target-"])
        for number in range(3):
            await storage.write(8, number * 2, [b"%02d" % number])
        await storage.seal(8)
        await storage.concat(7, 7, 8)
        assert await storage.state(8) is None
        assert await storage.state(7) == StorageState(7, 0, 13, False)
        assert await storage.read(7, 0, 13) == b"target-000102"
        await storage.concat(7, 7, 8)
        await collect_all(storage)
        await storage.write(7, 13, [b"!"])
        assert await storage.read(7, 5, 9) == b"t-000102!"
        assert await count(chunks, storage.layout.manifests_of(8)) == 0
        await storage.delete(7)
        await collect_all(storage)
        assert await count(chunks, storage.layout.chunks) == 0

    async def test_concat_into_nothing_and_of_nothing(self, storage: RollingStorage) -> None:
        await storage.write(8, 0, [b"all"])
        await storage.concat(7, 0, 8)
        assert await storage.read(7, 0, 3) == b"all"
        await storage.concat(7, 3, 9)
        await storage.seal(10)
        await storage.concat(7, 3, 10)
        assert await storage.state(10) is None
        assert await storage.state(7) == StorageState(7, 0, 3, False)

    async def test_concat_refuses(self, storage: RollingStorage) -> None:
        await storage.write(7, 0, [b"0123"])
        await storage.write(8, 0, [b"ab"])
        for offset in (3, 5):
            with pytest.raises(BadOffset):
                await storage.concat(7, offset, 8)
        with pytest.raises(BadOffset):
            await storage.concat(7, 5, 99)
        await storage.truncate(8, 1)
        with pytest.raises(UnsupportedOperation):
            await storage.concat(7, 4, 8)
        await storage.seal(7)
        await storage.write(9, 0, [b"x"])
        with pytest.raises(SegmentSealed):
            await storage.concat(7, 4, 9)

    async def test_delete_leaves_nothing(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        for number in range(5):
            await storage.write(7, number, [b"x"])
        for _ in range(2):
            await storage.delete(7)
        assert await storage.state(7) is None
        with pytest.raises(SegmentNotFound):
            await storage.read(7, 0, 1)
        await collect_all(storage)
        await storage.delete(7)
        assert await count(chunks, storage.layout.chunks) == 0
        assert await count(chunks, storage.layout.manifests) == 0

    async def test_the_next_epoch_sees_everything(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        model = b""
        for number in range(300):
            data = b"%d," % number
            await storage.write(7, len(model), [data])
            model += data
        await storage.truncate(7, 10)
        await storage.seal(7)
        later = await opened(chunks, 2)
        assert await later.state(7) == StorageState(7, 10, len(model), True)
        assert await later.read(7, 10, len(model) - 10) == model[10:]
        await later.truncate(7, 500)
        with pytest.raises(Fenced):
            await storage.state(7)
        with pytest.raises(Fenced):
            await opened(chunks, 1)
        await later.close()

    async def test_containers_share_a_store(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        other = await opened(chunks, 9, container_id=30)
        await storage.write(7, 0, [b"three"])
        await other.write(7, 0, [b"thirty"])
        assert await storage.read(7, 0, 5) == b"three"
        assert await other.read(7, 0, 6) == b"thirty"
        await other.close()

    async def test_segments_are_written_and_read_at_once(self, storage: RollingStorage) -> None:
        async def fill(segment_id: int) -> None:
            for number in range(10):
                await storage.write(segment_id, number * 4, [b"%04d" % number])
                assert await storage.read(segment_id, 0, 4) == b"0000"

        await asyncio.gather(*(fill(segment_id) for segment_id in range(1, 21)))
        for segment_id in range(1, 21):
            assert await storage.read(segment_id, 36, 4) == b"0009"

    async def test_small_chunks_become_one(self, storage: RollingStorage, chunks: ChunkStorage) -> None:
        model = b""
        for number in range(40):
            await storage.write(7, len(model), [b"%d;" % number])
            model += b"%d;" % number
        assert await storage.compactor.compact(7)
        assert await storage.read(7, 0, len(model)) == model
        await collect_all(storage)
        assert await count(chunks, storage.layout.chunks) == 1
        assert not await storage.compactor.compact(7)
        await storage.write(7, len(model), [b"end"])
        assert await storage.read(7, len(model) - 1, 4) == b";end"
        assert await storage.state(7) == StorageState(7, 0, len(model) + 3, False)


async def count(chunks: ChunkStorage, prefix: str) -> int:
    return len([info async for info in chunks.list(prefix)])
