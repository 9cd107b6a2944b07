"""Merging keeps the number of runs small and rewrites a byte a logarithmic number of times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pravega_common.errors import DataCorruption, Fenced, Unavailable
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.segment_storage import Barrier
from segment_service.sorted_runs.map_manifest import Run, RunFile
from segment_service.sorted_runs.merging import runs_max, runs_to_merge
from segment_service.sorted_runs.run_reader import look_up
from segment_service.sorted_runs.sorted_run_map import SortedRunMap
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.sorted_map_contract import STAMP, nothing, open_map
from tests.support.tier2_garbage import collect_all


def test_few_runs_and_large_old_ones_stay() -> None:
    assert runs_to_merge([]) == 0
    assert runs_to_merge([1, 1, 1]) == 0
    assert runs_to_merge([1, 1, 1, 1]) == 4
    assert runs_to_merge([1, 1, 1, 1, 4, 100]) == 5
    assert runs_to_merge([1, 2, 4, 8]) == 0
    doubling = [1] + [1 << number for number in range(1, runs_max)]
    assert runs_to_merge(doubling) == 0
    assert runs_to_merge(doubling, is_full=True) == 4
    assert runs_to_merge(doubling[:3], is_full=True) == 0


def test_a_byte_is_rewritten_a_logarithmic_number_of_times() -> None:
    runs: list[int] = []
    written = most = 0
    for _ in range(10_000):
        runs.insert(0, 1)
        count = runs_to_merge(runs)
        if count:
            written += sum(runs[:count])
            runs[:count] = [sum(runs[:count])]
        most = max(most, len(runs))
    assert sum(runs) == 10_000
    assert most <= 18
    assert written <= 10_000 * 15


async def opened(
    chunks: InMemoryChunkStorage, epoch: int, barrier: Barrier = nothing
) -> tuple[RollingStorage, SortedRunMaps, SortedRunMap]:
    storage = RollingStorage(chunks, 5, SystemClock(), background=False)
    await storage.start(epoch, barrier, lambda: STAMP)
    maps = SortedRunMaps(5, chunks, storage, SystemClock())
    things = maps.sorted_map("things")
    await things.open()
    return storage, maps, things


async def collect(storage: RollingStorage) -> None:
    await collect_all(storage)


async def test_a_flush_hashes_no_file_of_the_runs_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segment_service.sorted_runs.run_writer.file_bytes_max", 100)
    monkeypatch.setattr("segment_service.sorted_runs.run_writer.block_bytes", 100)
    _, _, things = await opened(InMemoryChunkStorage(), 1)
    await things.flush({b"%d" % number: b"x" * 100 for number in range(100)}, STAMP)
    hashed: list[RunFile] = []
    plain = RunFile.__hash__

    def counted(file: RunFile) -> int:
        hashed.append(file)
        return plain(file)

    monkeypatch.setattr(RunFile, "__hash__", counted)
    await things.flush({b"1": b"y"}, STAMP)
    assert not things.can_merge
    assert sum(things.run_lengths) > 10_000
    assert len(hashed) <= 5, "a flush costs as much as the map has files"


def files(chunks: InMemoryChunkStorage) -> list[str]:
    return [name for name in chunks.objects if "/t/" in name]


async def test_the_bottom_drops_tombstones_and_what_they_hide() -> None:
    chunks = InMemoryChunkStorage()
    storage, maps, things = await opened(chunks, 1)
    for number in range(4):
        await things.flush({b"%d" % number: b"x" * 100}, STAMP)
    await things.flush({b"%d" % number: None for number in range(4)}, STAMP)
    await maps.merge_waiting()
    assert things.run_lengths == []
    await collect(storage)
    assert len(files(chunks)) == 1  # the manifest


async def test_an_older_run_keeps_a_tombstone_alive() -> None:
    chunks = InMemoryChunkStorage()
    _, maps, things = await opened(chunks, 1)
    await things.flush({b"%05d" % number: b"x" * 100 for number in range(1_000)}, STAMP)
    for _ in range(3):
        await things.flush({b"new": b"1"}, STAMP)
    await things.flush({b"00007": None}, STAMP)
    await maps.merge_waiting()
    assert len(things.run_lengths) == 2
    assert await things.get(b"00007") is None
    assert await things.get(b"00008") == b"x" * 100


async def test_runs_are_bounded_without_background_work() -> None:
    _, _, things = await opened(InMemoryChunkStorage(), 1)
    for number in range(3 * runs_max):
        await things.flush({b"%d" % number: b"x"}, STAMP)
        assert len(things.run_lengths) <= runs_max


async def test_parts_of_a_discarded_file_leave_the_cache() -> None:
    _, maps, things = await opened(InMemoryChunkStorage(), 1)
    for number in range(4):
        await things.flush({b"%d" % number: b"x" * 100}, STAMP)
        await things.get(b"%d" % number)
    assert len(maps.cache) == 8  # a tail and a block of each run
    await maps.merge_waiting()
    assert (len(maps.cache), maps.cache.bytes_used) == (0, 0)
    assert await things.get(b"2") == b"x" * 100
    assert len(maps.cache) == 2
    await things.remove_all()
    assert (len(maps.cache), maps.cache.bytes_used) == (0, 0)


async def test_a_read_goes_on_while_its_runs_are_merged_away() -> None:
    chunks = InMemoryChunkStorage()
    storage, maps, things = await opened(chunks, 1)
    for number in range(4):
        await things.flush({b"%d" % number: b"x"}, STAMP)
    asked: list[Any] = []

    async def look_up_late(runs: tuple[Run, ...]) -> bytes | None:
        if not asked:
            await maps.merge_waiting()
            await collect(storage)
        asked.append(runs)
        return await look_up(things._objects, runs, b"2")  # private: as ``get`` does

    assert await things._read(look_up_late) == b"x"
    assert [len(runs) for runs in asked] == [4, 1]


async def test_a_missing_file_is_named() -> None:
    chunks = InMemoryChunkStorage()
    _, _, things = await opened(chunks, 1)
    await things.flush({b"a": b"1"}, STAMP)
    (lost,) = (name for name in files(chunks) if "/r/" in name)
    await chunks.delete_all([lost])
    with pytest.raises(DataCorruption, match=f"{lost} is missing.*restore"):
        await (await open_map(chunks, 2)).get(b"a")


async def test_an_owner_whose_map_a_later_one_removed_is_fenced_and_reports_no_damage() -> None:
    """The later owner leaves nothing of the map that would show its epoch."""
    chunks = InMemoryChunkStorage()

    async def barrier() -> None:
        if is_superseded:
            raise Fenced("epoch 2 took over")

    is_superseded = False
    _, _, things = await opened(chunks, 1, barrier)
    await things.flush({b"a": b"1"}, STAMP)
    is_superseded = True
    storage, _, later = await opened(chunks, 2)
    await later.remove_all()
    await collect(storage)
    assert not files(chunks)
    with pytest.raises(Fenced, match="epoch 2 took over"):
        await things.get(b"a")
    is_superseded = False
    with pytest.raises(DataCorruption, match=r"is missing, and so is every manifest.*restore"):
        await things.get(b"a")


async def test_a_damaged_file_is_named_and_a_flipped_bit_on_the_way_is_read_again() -> None:
    chunks = InMemoryChunkStorage()
    _, _, things = await opened(chunks, 1)
    await things.flush({b"a": b"1"}, STAMP)
    (name,) = (name for name in files(chunks) if "/r/" in name)
    whole = chunks.objects[name]
    chunks.objects[name] = whole[:9] + bytes([whole[9] ^ 1]) + whole[10:]
    with pytest.raises(DataCorruption, match=f"{name}.*restore"):
        await (await open_map(chunks, 2)).get(b"a")
    get = chunks.get

    async def mend(name: str, offset: int, length: int) -> bytes:
        data = await get(name, offset, length)
        if offset == 0:
            chunks.objects[name] = whole
        return data

    chunks.get = mend  # type: ignore[method-assign]
    assert await (await open_map(chunks, 3)).get(b"a") == b"1"


async def test_a_zombie_whose_runs_are_gone_is_fenced_and_mixes_nothing() -> None:
    chunks = InMemoryChunkStorage()
    _, _, zombie = await opened(chunks, 1)
    for number in range(4):
        await zombie.flush({b"%d" % number: b"old"}, STAMP)
    storage, maps, owner = await opened(chunks, 2)
    await owner.flush({b"0": b"new"}, STAMP)
    await maps.merge_waiting()
    await collect(storage)
    with pytest.raises(Fenced):
        await zombie.get_many([b"0", b"1"])


async def test_what_a_crash_left_is_deleted_once_this_epoch_wrote() -> None:
    chunks = InMemoryChunkStorage()
    _, _, things = await opened(chunks, 1)
    await things.flush({b"a": b"1"}, STAMP)
    orphan = "c00005/t/things/r/0000000000000001-00000000000000ff"
    chunks.objects[orphan] = b"left"
    chunks._names = sorted(chunks.objects)  # private: as a put that no manifest followed
    storage, _, owner = await opened(chunks, 2)
    await collect(storage)
    assert orphan in chunks.objects
    await owner.flush({b"b": b"2"}, STAMP)
    await collect(storage)
    assert orphan not in chunks.objects
    assert len(files(chunks)) == 3


async def test_what_many_want_at_once_is_read_once() -> None:
    chunks = InMemoryChunkStorage()
    _, maps, things = await opened(chunks, 1)
    await things.flush({b"%04d" % number: b"x" for number in range(100)}, STAMP)
    maps.cache._parts.clear()  # private: nothing is in memory
    get, reads = chunks.get, []

    async def slow(name: str, offset: int, length: int) -> bytes:
        reads.append((name, offset))
        await asyncio.sleep(0)
        if len(reads) == 1:
            raise Unavailable("the first attempt fails for the one that made it")
        return await get(name, offset, length)

    chunks.get = slow  # type: ignore[method-assign]
    answers = await asyncio.gather(*(things.get(b"%04d" % number) for number in range(100)), return_exceptions=True)
    assert [type(answer) for answer in answers].count(Unavailable) == 1
    assert answers.count(b"x") == 99
    assert len(reads) == 3
    assert not maps.cache.loading
