"""An owner that was fenced without knowing it writes to Tier 2, step by step."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from pravega_common.errors import Fenced, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import StorageState
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.log_states import some_log


class Owners:
    """Opens owners one after the other; a barrier passes for the last one only."""

    def __init__(self, chunks: InMemoryChunkStorage) -> None:
        self.chunks = chunks
        self.epoch = 0
        self.barriers = 0

    async def open(self, chunks: ChunkStorage | None = None) -> RollingStorage:
        self.epoch += 1
        storage = RollingStorage(chunks or self.chunks, 1, SystemClock(), background=False)
        await storage.start(self.epoch, self._barrier_of(self.epoch), some_log)
        return storage

    def _barrier_of(self, epoch: int) -> Callable[[], Awaitable[None]]:
        async def barrier() -> None:
            self.barriers += 1
            if epoch < self.epoch:
                raise Fenced(f"{epoch} < {self.epoch}")

        return barrier


@pytest.fixture
def owners() -> Owners:
    return Owners(InMemoryChunkStorage())


async def write_small(storage: RollingStorage, segment_id: int, count: int, offset: int = 0) -> None:
    for number in range(count):
        await storage.write(segment_id, offset + number, [b"%d" % (number % 10)])


async def test_it_deletes_no_chunk_that_its_compaction_replaced(owners: Owners) -> None:
    zombie = await owners.open()
    await write_small(zombie, 7, 20)
    owner = await owners.open()
    await owner.write(7, 20, [b"new"])
    assert await zombie.compactor.compact(7)
    with pytest.raises(Fenced):
        await zombie.garbage.collect()
    assert await owner.read(7, 0, 23) == b"01234567890123456789new"
    later = await owners.open()
    assert await later.read(7, 0, 23) == b"01234567890123456789new"


async def test_it_cannot_take_a_source_away(owners: Owners) -> None:
    zombie = await owners.open()
    await zombie.write(7, 0, [b"target"])
    await zombie.write(8, 0, [b"source"])
    owner = await owners.open()
    assert await owner.state(7) == StorageState(7, 0, 6, False)
    await owner.write(7, 6, [b"!"])
    with pytest.raises(Fenced):
        await zombie.concat(7, 6, 8)
    assert await owner.state(8) == StorageState(8, 0, 6, False)
    await owner.concat(7, 7, 8)
    later = await owners.open()
    assert await later.read(7, 0, 13) == b"target!source"
    assert await later.state(8) is None


async def test_its_late_manifest_cannot_name_a_chunk_that_was_swept(owners: Owners) -> None:
    slow = FaultyChunkStorage(owners.chunks, random.Random(1), SystemClock())
    zombie = await owners.open(slow)
    await zombie.write(7, 0, [b"old"])
    put = slow.put

    async def manifests_are_late(name: str, data: object) -> None:
        slow.rates = FaultRates(unknown_late=1.0 if "/m/" in name else 0.0)
        await put(name, data)  # type: ignore[arg-type]

    slow.put = manifests_are_late  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome):
        await zombie.write(7, 3, [b"-lost"])
    owner = await owners.open()
    swept = await owner.sweeper.sweep()
    assert swept.orphans == 1
    await owner.garbage.collect()
    assert await slow.land_late_puts() == 3
    assert await owner.state(7) == StorageState(7, 0, 3, False)
    later = await owners.open()
    assert await later.state(7) == StorageState(7, 0, 3, False)
    assert await later.read(7, 0, 3) == b"old"


async def test_a_merge_that_stopped_half_way_leaves_its_chunks_alone(owners: Owners) -> None:
    owner = await owners.open()
    await owner.write(7, 0, [b"target"])
    await write_small(owner, 8, 20)
    passes = owner.garbage._barrier  # private: the barrier fails between two steps of an owner that has started

    asked = 0

    async def fails_at_the_second() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:  # the target has the chunks, the source has them still
            raise Unavailable("the log does not answer")

    owner.garbage._barrier = fails_at_the_second
    with pytest.raises(Unavailable):
        await owner.concat(7, 6, 8)
    owner.garbage._barrier = passes
    await owner.compactor.compact_waiting()
    await owner.garbage.collect()
    assert await owner.read(7, 0, 26) == b"target01234567890123456789"
    await owner.concat(7, 6, 8)
    await owner.garbage.collect()
    assert await owner.state(8) is None
    assert await owner.read(7, 0, 26) == b"target01234567890123456789"


async def test_it_learns_of_the_fence_when_it_looks(owners: Owners) -> None:
    zombie = await owners.open()
    await zombie.write(7, 0, [b"old"])
    owner = await owners.open()
    await owner.write(7, 3, [b"new"])
    with pytest.raises(Fenced):
        await zombie.state(7)
    with pytest.raises(Fenced):
        await zombie.sweeper.sweep()


async def test_its_writes_do_not_count(owners: Owners) -> None:
    zombie = await owners.open()
    await zombie.write(7, 0, [b"old"])
    owner = await owners.open()
    await owner.write(7, 3, [b"new"])
    await zombie.write(7, 3, [b"newer"])
    await zombie.truncate(7, 3)
    assert await owner.state(7) == StorageState(7, 0, 6, False)
    assert await owner.read(7, 0, 6) == b"oldnew"


async def test_nothing_is_deleted_before_a_barrier_and_one_serves_many(owners: Owners) -> None:
    owner = await owners.open()
    for segment_id in range(1, 20):
        await write_small(owner, segment_id, 5)
        await owner.truncate(segment_id, 4)
    assert owners.barriers == 0
    assert len([name for name in owners.chunks.objects if "/d/" in name]) == 19 * 5
    await owner.garbage.collect()
    assert owners.barriers == 1
    assert len([name for name in owners.chunks.objects if "/d/" in name]) == 19


async def test_a_name_of_a_higher_epoch_is_never_deleted(owners: Owners) -> None:
    owner = await owners.open()
    owner.garbage.discard([owner.layout.epoch(2, 1)])
    with pytest.raises(Fenced):
        await owner.garbage.collect()
    assert owners.barriers == 0


async def test_garbage_in_one_group_goes_in_order_and_survives_failures(owners: Owners) -> None:
    faulty = FaultyChunkStorage(owners.chunks, random.Random(2), SystemClock())
    owner = await owners.open(faulty)
    names = [owner.layout.epoch(1, number) for number in range(100, 110)]
    for name in names:
        await owners.chunks.put(name, [b"x"])
    owner.garbage.discard(names)
    faulty.rates = FaultRates(unavailable=0.3)
    failures = 0
    while owner.garbage.waiting_names:
        try:
            await owner.garbage.collect()
        except Unavailable:
            failures += 1
        left = [name for name in names if name in owners.chunks.objects]
        assert left == names[len(names) - len(left) :]
    assert failures
