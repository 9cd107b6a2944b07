"""Says how every ``ChunkStorage`` behaves."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.chunk_storage import ChunkStorage, names_per_deletion_max


async def names(storage: ChunkStorage, prefix: str) -> list[str]:
    return [info.name async for info in storage.list(prefix)]


class ChunkStorageContract:
    """A subclass gives the fixture ``storage``, started and empty."""

    async def test_a_put_object_comes_back_whole_and_in_ranges(self, storage: ChunkStorage) -> None:
        data = random.Random(1).randbytes(100_000)
        await storage.put("c1/d/aa/1", [data[:7], bytearray(data[7:50_000]), memoryview(data)[50_000:]])
        assert await storage.get("c1/d/aa/1", 0, len(data)) == data
        assert await storage.get("c1/d/aa/1", 6, 3) == data[6:9]
        assert await storage.get("c1/d/aa/1", len(data) - 1, 1) == data[-1:]
        assert await storage.get("c1/d/aa/1", 5, 0) == b""
        assert (await storage.info("c1/d/aa/1")).length == len(data)

    async def test_a_function_is_given_what_a_get_gives(self, storage: ChunkStorage) -> None:
        data = random.Random(3).randbytes(100_000)
        await storage.put("c1/d/aa/1", [data])
        assert await storage.get_with("c1/d/aa/1", 6, 90_000, zlib.crc32) == zlib.crc32(data[6:90_006])
        assert await storage.get_with("c1/d/aa/1", 5, 0, len) == 0

    async def test_no_function_is_given_less(self, storage: ChunkStorage) -> None:
        given: list[bytes] = []
        await storage.put("short", [b"0123456789"])
        with pytest.raises(DataCorruption):
            await storage.get_with("short", 5, 6, given.append)
        with pytest.raises(SegmentNotFound, match="c1/none"):
            await storage.get_with("c1/none", 0, 1, given.append)
        assert not given

    async def test_what_a_function_raises_is_raised(self, storage: ChunkStorage) -> None:
        def refuse(data: bytes) -> None:
            raise OSError(f"{len(data)} bytes are refused")

        await storage.put("whole", [b"0123456789"])
        with pytest.raises(OSError, match="10 bytes are refused"):
            await storage.get_with("whole", 0, 10, refuse)

    async def test_an_empty_object_exists(self, storage: ChunkStorage) -> None:
        await storage.put("empty", [])
        assert (await storage.info("empty")).length == 0
        assert await storage.get("empty", 0, 0) == b""

    async def test_missing_objects_are_named(self, storage: ChunkStorage) -> None:
        with pytest.raises(SegmentNotFound, match="c1/none"):
            await storage.get("c1/none", 0, 1)
        with pytest.raises(SegmentNotFound, match="c1/none"):
            await storage.get("c1/none", 0, 0)
        with pytest.raises(SegmentNotFound, match="c1/none"):
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

    async def test_a_deletion_is_idempotent_and_final(self, storage: ChunkStorage) -> None:
        await storage.put("c1/d/1", [b"one"])
        await storage.put("c1/d/2", [b"two"])
        assert await storage.delete_all(["c1/d/1"]) == {}
        assert await storage.delete_all(["c1/d/1", "never/there"]) == {}
        with pytest.raises(SegmentNotFound):
            await storage.get("c1/d/1", 0, 1)
        assert await names(storage, "c1/") == ["c1/d/2"]

    async def test_many_at_once(self, storage: ChunkStorage) -> None:
        bodies = {f"p/{number % 5}/{number}": random.Random(number).randbytes(5_000) for number in range(100)}
        await asyncio.gather(*(storage.put(name, [body]) for name, body in bodies.items()))
        got = await asyncio.gather(*(storage.get(name, 0, 5_000) for name in bodies))
        assert list(got) == list(bodies.values())
        await asyncio.gather(*(storage.delete_all([name]) for name in bodies))
        assert await names(storage, "p/") == []

    async def test_a_deletion_takes_many_names_and_leaves_the_others(self, storage: ChunkStorage) -> None:
        wanted = [f"p/{number % 5}/{number:03d}" for number in range(names_per_deletion_max + 3)]
        for first in range(0, len(wanted), 50):
            await asyncio.gather(*(storage.put(name, [b"x"]) for name in wanted[first : first + 50]))
        assert await storage.delete_all(wanted[3:]) == {}
        assert await names(storage, "p/") == wanted[:3]

    @pytest.mark.parametrize("count", [0, names_per_deletion_max + 1])
    async def test_a_deletion_has_a_limit(self, storage: ChunkStorage, count: int) -> None:
        with pytest.raises(InvariantViolation, match="names in one deletion"):
            await storage.delete_all([str(number) for number in range(count)])

    async def test_sixteen_mebibytes_in_one_put(self, storage: ChunkStorage) -> None:
        piece = random.Random(4).randbytes(1 << 20)
        await storage.put("flush", [piece] * 16)
        assert await storage.get("flush", (15 << 20) + 5, 100) == piece[5:105]
