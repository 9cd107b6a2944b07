"""Segments whose objects in Tier 2 are damaged: no wrong byte is served, and the error says where it is."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pravega_common.errors import SegmentDamaged
from segment_service.storage import change_journal, compaction
from segment_service.storage.chunk_format import ChunkForm, block_bytes, stored_length
from segment_service.storage.chunk_names import ManifestId
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.manifest import Manifest, decode, encode
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.segment_storage_contract import opened
from tests.support.tier2_garbage import collect_all

T = TypeVar("T")

DATA = random.Random(1).randbytes(3 * block_bytes + 1_000)


@pytest.fixture
def chunks() -> InMemoryChunkStorage:
    return InMemoryChunkStorage()


def names(chunks: InMemoryChunkStorage, prefix: str) -> list[str]:
    return sorted(name for name in chunks.objects if name.startswith(prefix))


def flip(chunks: InMemoryChunkStorage, name: str, position: int, bit: int = 0) -> None:
    damaged = bytearray(chunks.objects[name])
    damaged[position] ^= 1 << bit
    chunks.objects[name] = bytes(damaged)


async def written(chunks: InMemoryChunkStorage) -> tuple[RollingStorage, str]:
    """A segment 7 of one chunk, and the chunk's name."""
    storage = await opened(chunks, 1)
    await storage.write(7, 0, [DATA])
    (name,) = names(chunks, storage.layout.chunks)
    return storage, name


async def test_a_flipped_bit_is_never_served_and_what_is_around_it_is(chunks: InMemoryChunkStorage) -> None:
    storage, name = await written(chunks)
    flip(chunks, name, block_bytes + 4 + 100)
    with pytest.raises(SegmentDamaged, match=f"segment 7 in Tier 2: chunk {name}, offset 65536: block 1 .*restore"):
        await storage.read(7, block_bytes + 50_000, 10)
    with pytest.raises(SegmentDamaged):
        await storage.read(7, 0, len(DATA))
    assert await storage.read(7, 0, block_bytes) == DATA[:block_bytes]
    assert await storage.read(7, 2 * block_bytes, 1_000) == DATA[2 * block_bytes : 2 * block_bytes + 1_000]
    flip(chunks, name, block_bytes + 4 + 100)
    assert await storage.read(7, 0, len(DATA)) == DATA


async def test_any_flipped_bit_of_a_chunk_or_its_manifest_is_noticed(chunks: InMemoryChunkStorage) -> None:
    storage, name = await written(chunks)
    (manifest,) = names(chunks, storage.layout.manifests)
    rng = random.Random(2)
    for number in range(400):
        damaged = name if number % 2 else manifest
        position, bit = rng.randrange(len(chunks.objects[damaged])), rng.randrange(8)
        flip(chunks, damaged, position, bit)
        later = await opened(chunks, number + 2)
        with pytest.raises(SegmentDamaged, match=damaged):
            await later.read(7, 0, len(DATA))
        flip(chunks, damaged, position, bit)
    last = await opened(chunks, 1_000)
    assert await last.read(7, 0, len(DATA)) == DATA


async def test_chunks_that_were_exchanged_cut_or_removed_are_noticed(chunks: InMemoryChunkStorage) -> None:
    storage, first = await written(chunks)
    await storage.write(7, len(DATA), [DATA[::-1]])
    second = names(chunks, storage.layout.chunks)[1]
    one, other = chunks.objects[first], chunks.objects[second]
    chunks.objects[first], chunks.objects[second] = other, one
    for offset in (0, len(DATA)):
        with pytest.raises(SegmentDamaged, match="has the checksum"):
            await storage.read(7, offset, 10)
    chunks.objects[first] = one[: len(one) - 1]
    with pytest.raises(SegmentDamaged, match=r"chunk .* wanted"):
        await storage.read(7, len(DATA) - 1, 1)
    chunks.objects[second] = other
    await chunks.delete_all([first])
    with pytest.raises(SegmentDamaged, match=f"offset 5: chunk {first} is missing"):
        await storage.read(7, 5, 10)
    assert await storage.read(7, len(DATA), 10) == DATA[::-1][:10]


async def test_blocks_of_another_content_fail_the_manifests_checksum(chunks: InMemoryChunkStorage) -> None:
    """An object whose blocks are right in themselves, under the right name."""
    storage, name = await written(chunks)
    other = InMemoryChunkStorage()
    twin = await opened(other, 1)
    await twin.write(7, 0, [DATA[::-1]])
    chunks.objects[name] = other.objects[name]
    with pytest.raises(SegmentDamaged, match="it holds other bytes"):
        await storage.read(7, 0, len(DATA))


async def test_a_bit_that_flips_on_its_way_is_read_again(chunks: InMemoryChunkStorage) -> None:
    storage, name = await written(chunks)
    get, calls = chunks.get, 0

    async def flipped_once(wanted: str, offset: int, length: int) -> bytes:
        nonlocal calls
        data = await get(wanted, offset, length)
        calls += wanted == name
        return data if calls != 1 else b"\xff" + data[1:]

    chunks.get = flipped_once  # type: ignore[method-assign, assignment]
    assert await storage.read(7, 0, 100) == DATA[:100]
    assert calls == 2


async def test_compaction_gives_no_damaged_byte_a_new_checksum(
    chunks: InMemoryChunkStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 3)
    storage = await opened(chunks, 1)
    for number in range(5):
        await storage.write(7, number * 10, [b"0123456789"])
    before = names(chunks, storage.layout.chunks)
    flip(chunks, before[2], 3)
    with pytest.raises(SegmentDamaged, match=before[2]):
        await storage.compactor.compact(7)
    assert names(chunks, storage.layout.chunks) == before
    assert await storage.read(7, 0, 20) == b"0123456789" * 2


async def test_a_segment_of_raw_chunks_is_read_and_compaction_gives_it_checksums(
    chunks: InMemoryChunkStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 3)
    storage = await opened(chunks, 1)
    for number in range(3):
        await storage.write(7, number * 10, [b"0123456789"])
    make_raw(chunks, storage)
    storage = await opened(chunks, 2)
    assert await storage.read(7, 5, 20) == (b"0123456789" * 3)[5:25]
    assert storage.block_around(7, 5) is None
    assert await storage.compactor.compact(7)
    assert await storage.read(7, 0, 30) == b"0123456789" * 3
    await collect_all(storage)
    (name,) = names(chunks, storage.layout.chunks)
    assert len(chunks.objects[name]) == stored_length(30)


def make_raw(chunks: InMemoryChunkStorage, storage: RollingStorage) -> None:
    """As commit 40bcc49 wrote it: chunks without checksums."""
    for name in names(chunks, storage.layout.chunks):
        chunks.objects[name] = chunks.objects[name][:-4]
    for name in names(chunks, storage.layout.manifests):
        manifest = decode(chunks.objects[name], name)
        raw = tuple(chunk._replace(form=ChunkForm.RAW, checksum=0) for chunk in manifest.chunks)
        values = {key: getattr(manifest, key) for key in Manifest.__slots__} | {"chunks": raw}
        chunks.objects[name] = encode(Manifest(**values))
        assert isinstance(manifest.id, ManifestId)


async def test_a_scan_reads_no_block_twice(chunks: InMemoryChunkStorage) -> None:
    """Reads that begin and end as ``block_around`` says."""
    storage = await opened(chunks, 1)
    length = 0
    for size in (70_000, 200_000, 10, 131_072, 500_000):
        await storage.write(7, length, [bytes(size)])
        length += size
    stored = sum(len(chunks.objects[name]) for name in names(chunks, storage.layout.chunks))
    get, taken = chunks.get, 0

    async def counted(name: str, offset: int, count: int) -> bytes:
        nonlocal taken
        taken += count
        return await get(name, offset, count)

    chunks.get = counted  # type: ignore[method-assign, assignment]
    offset = 0
    while offset < length:
        block = storage.block_around(7, offset)
        assert block is not None
        assert block[0] == offset
        await storage.read(7, offset, block[1] - offset)
        offset = block[1]
    assert taken == stored


async def test_chunks_are_checked_on_the_threads_that_read_them(tmp_path: Path) -> None:
    data = random.Random(2).randbytes(600_000)
    threads: set[str] = set()

    class Watched(FilesystemChunkStorage):
        async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
            def watched(stored: bytes) -> T:
                threads.add(threading.current_thread().name)
                return function(stored)

            return await super().get_with(name, offset, length, watched)

    chunks = Watched(tmp_path)
    await chunks.start()
    storage = await opened(chunks, 1)
    await storage.write(7, 0, [data])
    assert await storage.read(7, 100, len(data) - 100) == data[100:]
    assert threads
    assert threading.current_thread().name not in threads
    (name,) = [info.name async for info in chunks.list(storage.layout.chunks)]
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[3 * (block_bytes + 4) + 5] ^= 1
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(SegmentDamaged, match=f"chunk {name}, offset {3 * block_bytes}: block 3"):
        await storage.read(7, 0, len(data))
    await chunks.close()


@pytest.mark.parametrize("has_base", [True, False])
async def test_what_was_merged_into_a_segment_whose_manifests_cannot_be_read_goes_with_it(
    chunks: InMemoryChunkStorage, monkeypatch: pytest.MonkeyPatch, has_base: bool
) -> None:
    """Its chunks are named for the source, which nothing but their announcement says."""
    monkeypatch.setattr(change_journal, "generation_ids_max", 1)
    storage = await opened(chunks, 1)
    await storage.write(7, 0, [DATA])
    await storage.write(5, 0, [DATA])
    await storage.concat(7, len(DATA), 5)
    await collect_all(storage)
    await storage.sweeper.sweep()
    manifests = names(chunks, storage.layout.manifests_of(7))
    if has_base:
        flip(chunks, manifests[-1], 30)
    else:
        await chunks.delete_all(manifests[:1])
    await chunks.delete_all(names(chunks, storage.layout.journals))  # as later generations leave it
    for epoch in range(2, 8):
        storage = await opened(chunks, epoch)
        await storage.delete(7)
        await storage.write(9 + epoch, 0, [b"x"])
        await collect_all(storage)
        await storage.sweeper.sweep()
        await collect_all(storage)
    left = [name for segment in (5, 7) for name in names(chunks, storage.layout.chunks_of(segment))]
    assert not left + names(chunks, storage.layout.manifests_of(7)) + names(chunks, storage.layout.foreign_owners)


@pytest.mark.parametrize("has_base", [True, False])
async def test_a_segment_whose_manifests_cannot_be_read_can_be_deleted_and_leaves_nothing(
    chunks: InMemoryChunkStorage, monkeypatch: pytest.MonkeyPatch, has_base: bool
) -> None:
    """With its base lost as with a byte of its newest manifest wrong: what it listed is found by later sweeps."""
    monkeypatch.setattr(change_journal, "generation_ids_max", 1)
    storage, _ = await written(chunks)
    await storage.sweeper.sweep()  # from here on journals suffice
    await storage.write(7, len(DATA), [DATA])
    base, delta = names(chunks, storage.layout.manifests)
    await storage.write(9, 0, [b"x"])  # begins the next generation of journals
    await collect_all(storage)
    if has_base:
        flip(chunks, delta, 30)
    else:
        await chunks.delete_all([base])
    for epoch in (2, 3, 4):
        storage = await opened(chunks, epoch)
        await storage.delete(7)
        await storage.delete(7)
        assert await storage.state(7) is None
        await storage.write(9 + epoch, 0, [b"x"])
        await collect_all(storage)
    for epoch in (5, 6):
        storage = await opened(chunks, epoch)
        await storage.sweeper.sweep()
        await collect_all(storage)
    assert not names(chunks, storage.layout.chunks_of(7))
    assert not names(chunks, storage.layout.manifests_of(7))
    assert await storage.read(9, 0, 1) == b"x"
