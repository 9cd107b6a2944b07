"""A merge of large runs reads much at a time, and stops neither flushes nor other merges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from structlog.testing import capture_logs

from pravega_common.errors import DataCorruption, Unavailable
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.buffer import Buffer
from segment_service.sorted_runs.merging import merge_ahead_bytes, merges_at_once_max, runs_max
from segment_service.sorted_runs.run_format import block_bytes
from segment_service.sorted_runs.sorted_run_map import SortedRunMap
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.sorted_map_contract import STAMP, nothing
from tests.support.eventually import eventually

ENTRIES = 4_000
"""Of each large run, 100 bytes each: 25 blocks."""


class CountedChunks(InMemoryChunkStorage):
    """Tier 2 that notes the reads, holds those of some objects, and flips a bit in as many as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []
        self.held: set[str] = set()
        self.waiting = 0
        self.go = asyncio.Event()
        self.flips = 0

    async def get(self, name: str, offset: int, length: int) -> bytes:
        data = await super().get(name, offset, length)
        self.lengths.append(length)
        if name in self.held:
            self.waiting += 1
            await self.go.wait()
        if self.flips:
            self.flips -= 1
            data = data[:9] + bytes([data[9] ^ 1]) + data[10:]
        return data

    def hold_all(self) -> None:
        """Hold the reads of the objects that are there now."""
        self.held = set(self.objects)


@pytest.fixture
async def chunks() -> CountedChunks:
    return CountedChunks()


@pytest.fixture
async def maps(chunks: CountedChunks) -> AsyncIterator[SortedRunMaps]:
    storage = RollingStorage(chunks, 5, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    maps = SortedRunMaps(5, chunks, storage, SystemClock())
    yield maps
    await maps.stop()
    await storage.close()


async def large_map(maps: SortedRunMaps, name: str, runs: int = 4) -> SortedRunMap:
    things = maps.sorted_map(name)
    await things.open()
    for run in range(runs):
        await things.flush({b"%06d-%d" % (number, run): b"%d" % run * 92 for number in range(ENTRIES)}, STAMP)
    return things


async def all_entries(things: SortedRunMap) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    first = b""
    while page := await things.scan(first, 1_000):
        found.update(page)
        first = page[-1][0] + b"\0"
    return found


async def test_a_merge_reads_its_runs_in_large_pieces(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    chunks.lengths.clear()
    assert await things.merge_once()
    assert len(chunks.lengths) <= 2 * 4  # a tail and the blocks of each run
    assert block_bytes < max(chunks.lengths) <= merge_ahead_bytes // 4
    assert len(await all_entries(things)) == 4 * ENTRIES


async def test_a_merge_reads_all_files_of_its_runs_in_large_pieces(
    chunks: CountedChunks, maps: SortedRunMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segment_service.sorted_runs.run_writer.file_bytes_max", 160_000)
    monkeypatch.setattr("segment_service.sorted_runs.merging.merge_ahead_bytes", 4 * 65_000)
    things = await large_map(maps, "things")
    files = [file for run in things._runs for file in run.files]  # private: as merges
    assert len(files) == 3 * 4
    chunks.lengths.clear()
    with capture_logs() as lines:
        assert await things.merge_once()
    assert lines == []
    assert len(chunks.lengths) <= sum(2 + file.tail_offset // (65_000 - block_bytes) for file in files)
    assert len(await all_entries(things)) == 4 * ENTRIES


@pytest.mark.parametrize("ahead", [1, 30_000])
async def test_a_merge_holds_no_more_than_it_may(
    chunks: CountedChunks, maps: SortedRunMaps, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr("segment_service.sorted_runs.merging.merge_ahead_bytes", 4 * ahead)
    things = await large_map(maps, "things")
    tail_bytes = max(file.length - file.tail_offset for run in things._runs for file in run.files)  # private: as merges
    chunks.lengths.clear()
    assert await things.merge_once()
    assert max(chunks.lengths) <= max(ahead, tail_bytes, 2 * block_bytes)
    assert len(await all_entries(things)) == 4 * ENTRIES


async def test_a_flipped_bit_in_what_was_read_ahead_is_read_again(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    for file in (file for run in things._runs for file in run.files):  # private: the tails are in memory
        await things._objects.tail(file)
    chunks.flips = 1
    assert await things.merge_once()
    assert len(await all_entries(things)) == 4 * ENTRIES


async def test_a_damaged_block_ends_the_merge_with_its_name(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    (name, *_) = (name for name in chunks.objects if "/t/things/r/" in name)
    whole = chunks.objects[name]
    chunks.objects[name] = whole[:20_000] + bytes([whole[20_000] ^ 1]) + whole[20_001:]
    with pytest.raises(DataCorruption, match=f"{name}, offset [0-9]+: a block.*restore"):
        await things.merge_once()
    assert len(things.run_lengths) == 4


async def test_flushes_go_on_while_a_large_merge_does(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    await maps.start()
    chunks.hold_all()
    maps.consider(things)
    await eventually(lambda: chunks.waiting > 0)
    for number in range(4 * runs_max):
        await things.flush({b"new-%03d" % number: b"x"}, STAMP)
        assert len(things.run_lengths) <= runs_max
    assert chunks.waiting >= 1  # the large one still waits
    chunks.go.set()
    await eventually(lambda: len(things.run_lengths) < 4)
    found = await all_entries(things)
    assert len(found) == 4 * ENTRIES + 4 * runs_max
    assert found[b"000007-3"] == b"3" * 92


async def test_a_newer_value_wins_over_one_that_an_older_merge_brings(
    chunks: CountedChunks, maps: SortedRunMaps
) -> None:
    things = await large_map(maps, "things")
    chunks.hold_all()
    large = asyncio.create_task(things.merge_once())
    await eventually(lambda: chunks.waiting > 0)
    for _ in range(4):
        await things.flush({b"000001-0": b"new", b"000002-0": None}, STAMP)
    assert await things.merge_once()  # the four new ones, beside the large merge
    assert len(things.run_lengths) == 4 + 1
    chunks.go.set()
    assert await large
    assert len(things.run_lengths) == 2
    assert await things.get(b"000001-0") == b"new"
    assert await things.get(b"000002-0") is None


async def test_a_flush_of_a_full_map_waits_for_a_merge_to_end(
    chunks: CountedChunks, maps: SortedRunMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segment_service.sorted_runs.sorted_run_map.runs_max", 4)
    things = await large_map(maps, "things")
    chunks.hold_all()
    large = asyncio.create_task(things.merge_once())
    await eventually(lambda: chunks.waiting > 0)
    flush = asyncio.create_task(things.flush({b"a": b"1"}, STAMP))
    await asyncio.sleep(0.01)  # time in which it could end
    assert not flush.done()
    chunks.go.set()
    await asyncio.gather(large, flush)
    assert await things.get(b"a") == b"1"


async def test_a_large_merge_does_not_stop_those_of_other_maps(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    chunks.hold_all()
    others = maps.sorted_map("others")
    await others.open()
    await maps.start()
    maps.consider(things)
    await eventually(lambda: chunks.waiting > 0)
    for number in range(4):
        await others.flush({b"%d" % number: b"x"}, STAMP)
    await eventually(lambda: len(others.run_lengths) == 1)
    chunks.go.set()
    await eventually(lambda: len(things.run_lengths) == 1)


async def test_a_map_is_removed_after_the_merges_under_way(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    chunks.hold_all()
    large = asyncio.create_task(things.merge_once())
    await eventually(lambda: chunks.waiting > 0)
    removals = [asyncio.create_task(things.remove_all()) for _ in range(merges_at_once_max)]
    await asyncio.sleep(0.01)  # time in which they could end
    assert not any(removal.done() for removal in removals)
    chunks.go.set()
    await asyncio.gather(large, *removals)
    assert not things.is_open


async def test_a_merge_that_fails_leaves_its_runs_to_the_next(chunks: CountedChunks, maps: SortedRunMaps) -> None:
    things = await large_map(maps, "things")
    put = chunks.put

    async def refuse(name: str, data: Sequence[Buffer]) -> None:
        raise Unavailable("away")

    chunks.put = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await things.merge_once()
    chunks.put = put  # type: ignore[method-assign]
    assert await things.merge_once()
    assert len(await all_entries(things)) == 4 * ENTRIES
