"""One suite for every chunk storage: memory, directory, S3 (a real MinIO), and each through the faulty wrapper."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, NoSuchSegment, Unavailable, UnknownOutcome
from pravega_common.invariants import InvariantViolation
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.minio import MinioChunkStorage, MinioSettings, part_bytes_min
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.servers import MinioServer


async def names(storage: ChunkStorage, prefix: str) -> list[str]:
    return [info.name async for info in storage.list(prefix)]


class ChunkStorageContract:
    """What every adapter must do. Subclasses give the fixture ``storage``, started and empty."""

    async def test_a_put_object_comes_back_whole_and_in_ranges(self, storage: ChunkStorage) -> None:
        data = random.Random(1).randbytes(100_000)
        await storage.put("c1/d/aa/1", [data[:7], bytearray(data[7:50_000]), memoryview(data)[50_000:]])
        assert await storage.get("c1/d/aa/1", 0, len(data)) == data
        assert await storage.get("c1/d/aa/1", 6, 3) == data[6:9]
        assert await storage.get("c1/d/aa/1", len(data) - 1, 1) == data[-1:]
        assert await storage.get("c1/d/aa/1", 5, 0) == b""
        assert (await storage.info("c1/d/aa/1")).length == len(data)

    async def test_an_empty_object_exists(self, storage: ChunkStorage) -> None:
        await storage.put("empty", [])
        assert (await storage.info("empty")).length == 0
        assert await storage.get("empty", 0, 0) == b""

    async def test_missing_objects_are_named(self, storage: ChunkStorage) -> None:
        with pytest.raises(NoSuchSegment, match="c1/none"):
            await storage.get("c1/none", 0, 1)
        with pytest.raises(NoSuchSegment, match="c1/none"):
            await storage.get("c1/none", 0, 0)
        with pytest.raises(NoSuchSegment, match="c1/none"):
            await storage.info("c1/none")

    @pytest.mark.parametrize(("offset", "length"), [(0, 11), (5, 6), (10, 1), (20, 1)])
    async def test_a_short_object_is_corrupt(self, storage: ChunkStorage, offset: int, length: int) -> None:
        await storage.put("short", [b"0123456789"])
        with pytest.raises(DataCorruption):
            await storage.get("short", offset, length)

    async def test_list_is_ordered_and_bounded_by_its_prefix(self, storage: ChunkStorage) -> None:
        wanted = [f"c1/m/{segment:02x}/{number:04x}" for segment in range(3) for number in (1, 2, 10, 255)]
        for name in random.Random(2).sample(wanted, len(wanted)):
            await storage.put(name, [name.encode()])
        await storage.put("c1/m-other", [b"x"])
        await storage.put("c10/m/00/0001", [b"x"])
        assert await names(storage, "c1/m/") == sorted(wanted)
        assert await names(storage, "c1/m/01/") == [name for name in wanted if name.startswith("c1/m/01/")]
        assert await names(storage, "c1/m/01/000") == ["c1/m/01/0001", "c1/m/01/0002", "c1/m/01/000a"]
        assert await names(storage, "c1/m") == ["c1/m-other", *sorted(wanted)]
        assert await names(storage, "c2/") == []
        assert [info.length async for info in storage.list("c1/m/00/0001")] == [len("c1/m/00/0001")]

    async def test_list_of_more_than_a_page(self, storage: ChunkStorage) -> None:
        wanted = [f"many/{number:05d}" for number in range(1_050)]
        for first in range(0, len(wanted), 50):
            await asyncio.gather(*(storage.put(name, [b"x"]) for name in wanted[first : first + 50]))
        assert await names(storage, "many/") == wanted

    async def test_delete_is_idempotent_and_final(self, storage: ChunkStorage) -> None:
        await storage.put("c1/d/1", [b"one"])
        await storage.put("c1/d/2", [b"two"])
        await storage.delete("c1/d/1")
        await storage.delete("c1/d/1")
        await storage.delete("never/there")
        with pytest.raises(NoSuchSegment):
            await storage.get("c1/d/1", 0, 1)
        assert await names(storage, "c1/") == ["c1/d/2"]

    async def test_compose_joins_in_order_and_keeps_its_sources(self, storage: ChunkStorage) -> None:
        for name in "abc":
            await storage.put(name, [name.encode() * 10])
        await storage.compose("joined", ["c", "a", "b"])
        assert await storage.get("joined", 0, 30) == b"c" * 10 + b"a" * 10 + b"b" * 10
        assert (await storage.info("joined")).length == 30
        assert await storage.get("a", 0, 10) == b"a" * 10
        await storage.compose("copied", ["joined"])
        assert await storage.get("copied", 9, 2) == b"ca"
        with pytest.raises(NoSuchSegment):
            await storage.compose("broken", ["a", "missing"])
        assert await names(storage, "broken") == []

    async def test_compose_of_large_pieces(self, storage: ChunkStorage) -> None:
        large = random.Random(3).randbytes(part_bytes_min)
        await storage.put("large", [large])
        await storage.put("small", [b"end"])
        await storage.compose("both", ["large", "small"])
        assert await storage.get("both", part_bytes_min - 2, 5) == large[-2:] + b"end"
        assert (await storage.info("both")).length == part_bytes_min + 3

    async def test_many_at_once(self, storage: ChunkStorage) -> None:
        bodies = {f"p/{number % 5}/{number}": random.Random(number).randbytes(5_000) for number in range(100)}
        await asyncio.gather(*(storage.put(name, [body]) for name, body in bodies.items()))
        got = await asyncio.gather(*(storage.get(name, 0, 5_000) for name in bodies))
        assert list(got) == list(bodies.values())
        await asyncio.gather(*(storage.delete(name) for name in bodies))
        assert await names(storage, "p/") == []

    async def test_sixteen_mebibytes_in_one_put(self, storage: ChunkStorage) -> None:
        piece = random.Random(4).randbytes(1 << 20)
        await storage.put("flush", [piece] * 16)
        assert await storage.get("flush", (15 << 20) + 5, 100) == piece[5:105]


class TestInMemory(ChunkStorageContract):
    @pytest.fixture
    async def storage(self) -> ChunkStorage:
        return InMemoryChunkStorage()

    async def test_a_name_is_used_once(self, storage: ChunkStorage) -> None:
        await storage.put("one", [b"1"])
        with pytest.raises(InvariantViolation):
            await storage.put("one", [b"2"])


class TestFilesystem(ChunkStorageContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[ChunkStorage]:
        storage = FilesystemChunkStorage(tmp_path / "tier2", threads_max=4)
        await storage.start()
        yield storage
        await storage.close()

    async def test_a_name_is_used_once(self, storage: ChunkStorage) -> None:
        await storage.put("one", [b"1"])
        with pytest.raises(InvariantViolation):
            await storage.put("one", [b"2"])
        assert await storage.get("one", 0, 1) == b"1"

    async def test_another_process_sees_what_was_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("c1/d/1", [b"here"])
        other = FilesystemChunkStorage(tmp_path / "tier2")
        await other.start()
        assert await other.get("c1/d/1", 0, 4) == b"here"
        await other.close()

    async def test_nothing_is_left_of_a_failed_put(self, storage: ChunkStorage, tmp_path: Path) -> None:
        await storage.put("file", [b"x"])
        with pytest.raises(Unavailable):
            await storage.put("file/below", [b"y"])
        assert await names(storage, "") == ["file"]
        assert list((tmp_path / "tier2" / ".incoming").iterdir()) == []

    async def test_an_unwritable_folder_is_refused_at_start(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        storage = FilesystemChunkStorage(tmp_path / "file" / "below")
        with pytest.raises(ConfigurationError, match="create it or choose another"):
            await storage.start()
        await storage.close()

    @pytest.mark.parametrize("name", ["../outside", "/absolute", "a//b", "a/./b", ""])
    async def test_names_cannot_leave_the_folder(self, storage: ChunkStorage, name: str) -> None:
        with pytest.raises(InvariantViolation):
            await storage.put(name, [b"x"])


class TestMinio(ChunkStorageContract):
    @pytest.fixture
    async def storage(self, minio_server: MinioServer) -> AsyncIterator[ChunkStorage]:
        storage = MinioChunkStorage(settings_for(minio_server))
        await storage.start()
        yield storage
        await storage.close()

    async def test_starting_twice_finds_the_bucket(self, minio_server: MinioServer) -> None:
        settings = settings_for(minio_server)
        for _ in range(2):
            storage = MinioChunkStorage(settings)
            await storage.start()
            assert await names(storage, "") == []
            await storage.close()

    async def test_wrong_keys_are_refused_at_start(self, minio_server: MinioServer) -> None:
        settings = MinioSettings(minio_server.address, "nobody", "nothing-at-all", "bucket")
        storage = MinioChunkStorage(settings)
        with pytest.raises(ConfigurationError, match="AccessDenied"):
            await storage.start()
        await storage.close()

    async def test_an_unreachable_server_is_unavailable(self) -> None:
        settings = MinioSettings("127.0.0.1:1", "key", "secret-secret", "bucket", start_time_max_s=0.3)
        storage = MinioChunkStorage(settings)
        with pytest.raises(Unavailable):
            await storage.start()
        with pytest.raises(Unavailable):
            await storage.put("never", [b"stored"])
        await storage.close()


def settings_for(server: MinioServer) -> MinioSettings:
    bucket = f"test-{uuid.uuid4().hex}"
    return MinioSettings(server.address, server.access_key, server.secret_key, bucket, threads_max=8)


class TestFaultyWithoutFaults(ChunkStorageContract):
    @pytest.fixture
    async def storage(self) -> ChunkStorage:
        return FaultyChunkStorage(InMemoryChunkStorage(), random.Random(1), SystemClock())


class TestFaulty:
    async def test_a_stopped_store_does_nothing(self) -> None:
        inner = InMemoryChunkStorage()
        storage = FaultyChunkStorage(inner, random.Random(1), SystemClock())
        storage.stop()
        with pytest.raises(Unavailable):
            await storage.put("a", [b"1"])
        assert not inner.objects
        storage.resume()
        await storage.put("a", [b"1"])
        assert inner.objects == {"a": b"1"}

    async def test_unknown_puts_are_done_lost_or_late(self) -> None:
        inner = InMemoryChunkStorage()
        rates = FaultRates(unknown_done=0.3, unknown_lost=0.3, unknown_late=0.3)
        storage = FaultyChunkStorage(inner, random.Random(5), SystemClock(), rates)
        unknown = 0
        for number in range(200):
            try:
                await storage.put(f"{number:03d}", [b"x"])
            except UnknownOutcome:
                unknown += 1
        before = len(inner.objects)
        late = await storage.land_late_puts()
        assert 150 < unknown < 200
        assert late > 30
        assert len(inner.objects) == before + late < 200
