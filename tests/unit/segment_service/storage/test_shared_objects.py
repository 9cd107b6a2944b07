"""Small objects that share large ones: what is put, what each owner sees, and what damage does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from pravega_common.errors import DataCorruption, Fenced, PravegaError, SegmentDamaged, Unavailable
from pravega_common.runtime.clock import Clock, SystemClock
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.contracts.segment_storage import LogState, StorageState
from segment_service.maintenance.shared_objects_reader import SharedObjectsReader
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage import change_journal, rolling_storage, shared_objects
from segment_service.storage.chunk_names import ChunkId, Layout, is_entry_number, placed_number
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.shared_objects import entry_key, first_epoch_in
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.tier2_garbage import collect_all

CONTAINER = 3
LAYOUT = Layout(CONTAINER)
LARGE = 100_000


class CountingChunks(InMemoryChunkStorage):
    """Counts puts, and the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.read_bytes = 0
        self.before_list: tuple[str, Callable[[], Awaitable[object]]] | None = None
        """A prefix, and what is done once, before names are listed below it."""

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        if self.before_list is not None and prefix == self.before_list[0]:
            (_, change), self.before_list = self.before_list, None
            await change()
        async for info in super().list(prefix):
            yield info

    async def get(self, name: str, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return await super().get(name, offset, length)

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        self.puts += 1
        await super().put(name, data)


class Owners:
    """Opens owners one after the other; a barrier passes for the last one only."""

    def __init__(self) -> None:
        self.chunks = CountingChunks()
        self.epoch = 0
        self.barriers = 0
        self.after_barrier: Callable[[], Awaitable[object]] | None = None
        """Happens once, behind the next barrier and before its caller goes on."""
        self.next_segment_id = 10_000
        """Above every id that earlier owners used, as the log of each says."""
        self.maps: SortedRunMaps | None = None
        self.clock: Clock = SystemClock()

    async def open(self, *, shares: bool = True) -> RollingStorage:
        self.epoch += 1
        epoch, log = self.epoch, LogState(bytes(16), 100 * self.epoch, self.next_segment_id)

        async def barrier() -> None:
            self.barriers += 1
            if epoch < self.epoch:
                raise Fenced(f"{epoch} < {self.epoch}")
            then, self.after_barrier = self.after_barrier, None
            if then is not None:
                await then()

        storage = RollingStorage(self.chunks, CONTAINER, self.clock, background=False, shares_objects=shares)
        self.maps = SortedRunMaps(CONTAINER, self.chunks, storage, self.clock)
        await storage.start(epoch, barrier, lambda: log)
        return storage

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.chunks.objects if name.startswith(prefix)]


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    monkeypatch.setattr(shared_objects, "gathering_time_s", 0.001)
    return Owners()


def refuse_flushes(storage: RollingStorage, monkeypatch: pytest.MonkeyPatch, error: PravegaError) -> None:
    async def refuse(changes: object, stamp: object) -> None:
        raise error

    monkeypatch.setattr(storage.shared._map, "flush", refuse)  # private: the map of the owner


async def names_in(storage: RollingStorage, prefix: str) -> list[str]:
    return [info.name async for info in storage.shared.list(prefix)]


def test_the_number_in_a_name_says_where_the_object_lies() -> None:
    numbers = [placed_number(count, is_entry=count % 3 == 0) for count in range(1, 10)]
    assert numbers == sorted(set(numbers))
    assert [is_entry_number(number) for number in numbers] == [count % 3 == 0 for count in range(1, 10)]
    assert not any(map(is_entry_number, (0, 1, 2, 3, 2**62 + 1)))


def test_golden_bytes() -> None:
    name = LAYOUT.chunk(ChunkId(1, 2, placed_number(3, is_entry=True)))
    assert entry_key(LAYOUT, name) == b"d/0000000000000001/0000000000000002-8000000000000007"
    assert placed_number(3, is_entry=False) == 0x8000000000000006
    assert first_epoch_in(bytes.fromhex("0000000000000009")) == 9
    assert first_epoch_in(None) is None


@pytest.mark.parametrize("damaged", ["", "00000000000009", "000000000000000900"])
def test_a_damaged_first_epoch_is_refused(damaged: str) -> None:
    with pytest.raises(DataCorruption, match=r"has [0-9] bytes, not 8"):
        first_epoch_in(bytes.fromhex(damaged))


async def test_those_that_wait_go_on_in_turns_and_all_of_them(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "answers_per_turn", 2)
    storage = await owners.open()
    await asyncio.gather(*(storage.write(number, 0, [b"x"]) for number in range(1, 20)))
    assert [(await storage.state(number)) for number in range(1, 20)] == [
        StorageState(number, 0, 1, False) for number in range(1, 20)
    ]


async def test_segments_that_are_flushed_together_are_a_few_puts(owners: Owners) -> None:
    storage = await owners.open()
    before = owners.chunks.puts
    await asyncio.gather(*(storage.write(number, 0, [b"%d" % number]) for number in range(1, 1_001)))
    assert owners.chunks.puts - before < 30
    assert owners.names(LAYOUT.chunks) == owners.names(LAYOUT.manifests) == []
    for later in (storage, await owners.open(), await owners.open(shares=False)):
        assert await later.read(777, 0, 3) == b"777"
        assert await later.state(777) == StorageState(777, 0, 3, False)


async def test_large_chunks_are_objects_of_their_own(owners: Owners) -> None:
    storage = await owners.open()
    await storage.write(1, 0, [bytes(LARGE)])
    await storage.write(1, LARGE, [b"small"])
    assert len(owners.names(LAYOUT.chunks)) == 1
    assert len(owners.names(LAYOUT.manifests)) == 1
    assert len(await names_in(storage, LAYOUT.chunks)) == 2
    assert len(await names_in(storage, LAYOUT.manifests)) == 2
    assert await (await owners.open()).read(1, LARGE - 1, 6) == b"\0small"


async def test_owners_that_share_and_owners_that_do_not_follow_each_other(owners: Owners) -> None:
    data = b""
    for number in range(12):
        storage = await owners.open(shares=number % 3 > 0)
        await storage.write(1, len(data), [b"%d" % number])
        data += b"%d" % number
        assert await storage.read(1, 0, len(data)) == data
        await collect_all(storage)
    await storage.delete(1)
    for shares in (True, False):  # what nobody waited for is found by a sweep
        storage = await owners.open(shares=shares)
        await storage.sweeper.sweep()
        await collect_all(storage)
        await storage.write(owners.epoch, 0, [b"x"])  # the flush that takes the removals along
    later = await owners.open()
    assert await later.state(1) is None
    for prefix in (LAYOUT.chunks_of(1), LAYOUT.manifests_of(1)):
        assert await names_in(later, prefix) == []


async def test_what_a_fenced_owner_still_shares_does_not_count(owners: Owners) -> None:
    zombie = await owners.open()
    await zombie.write(1, 0, [b"old"])
    owner = await owners.open()
    await zombie.write(1, 3, [b"late"])
    await zombie.write(2, 0, [b"late"])
    assert await zombie.read(1, 0, 7) == b"oldlate"
    for storage in (owner, await owners.open()):
        assert await storage.state(1) == StorageState(1, 0, 3, False)
        assert await storage.state(2) is None


async def test_a_large_manifest_does_not_show_entries_that_are_not_there(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling_storage, "shared_object_bytes_max", 200)
    zombie = await owners.open()
    await zombie.write(1, 0, [b"0"])
    owner = await owners.open()
    with pytest.raises(Fenced):  # its manifest is too large for the map, and would be seen
        for number in range(1, 10):
            await zombie.write(1, number, [b"%d" % number])
    for storage in (owner, await owners.open()):
        assert await storage.read(1, 0, 1) == b"0"
        assert await storage.state(1) == StorageState(1, 0, 1, False)


@pytest.mark.parametrize("truncated", [False, True])
async def test_the_manifest_of_a_large_write_does_not_show_entries_that_are_not_there(
    owners: Owners, truncated: bool
) -> None:
    zombie = await owners.open()
    await zombie.write(1, 0, [b"seen"])
    owner = await owners.open()
    await zombie.write(2, 0, [b"late"])
    if truncated:  # then only its base is an entry
        await zombie.truncate(2, 4)
    with pytest.raises(Fenced):
        await zombie.write(2, 4, [bytes(LARGE)])
    with pytest.raises(Fenced):
        await zombie.write(1, 4, [bytes(LARGE)])
    for storage in (owner, await owners.open()):
        assert await storage.state(1) == StorageState(1, 0, 4, False)
        assert await storage.state(2) is None
        assert await storage.read(1, 0, 4) == b"seen"


async def test_a_large_write_of_a_segment_of_large_ones_needs_no_barrier(owners: Owners) -> None:
    zombie = await owners.open()
    await zombie.write(1, 0, [bytes(LARGE)])
    owner = await owners.open()
    await zombie.write(1, LARGE, [b"\1" * LARGE])  # as without shared objects: it was committed, so it may be seen
    assert await owner.state(1) == StorageState(1, 0, 2 * LARGE, False)
    assert await owner.read(1, LARGE - 1, 2) == b"\0\1"


async def test_new_segments_are_not_looked_for(owners: Owners) -> None:
    owners.next_segment_id = 1
    first = await owners.open()
    await first.write(5, 0, [b"five"])
    owners.next_segment_id = 6
    second = await owners.open()
    await second.write(6, 0, [b"six"])
    second._manifests.forget(6)
    assert await second.state(5) == StorageState(5, 0, 4, False)
    assert await second.state(6) == StorageState(6, 0, 3, False)
    assert await second.state(7) is None


@pytest.mark.parametrize("beside", [False, True])
async def test_the_listing_of_a_segment_does_not_read_the_objects_of_others(owners: Owners, beside: bool) -> None:
    entry_bytes, segments = 50_000, 40
    first = await owners.open()
    await asyncio.gather(*(first.write(number, 0, [bytes(entry_bytes)]) for number in range(1, segments)))
    owner = await owners.open()
    chunks = SharedObjectsReader(owners.chunks, LAYOUT, SystemClock()) if beside else owner.shared
    for number in (1, 20, segments - 1, segments):
        owners.chunks.read_bytes = 0
        found = [info async for info in chunks.list(LAYOUT.chunks_of(number))]
        assert len(found) == int(number < segments)
        assert owners.chunks.read_bytes < 6 * entry_bytes, "a block of each run, and the tails of files"


async def test_programs_that_know_of_no_shared_objects_refuse_the_mark(owners: Owners) -> None:
    versions = []
    for shares in (False, True, False):
        await owners.open(shares=shares)
        newest = max(owners.names(LAYOUT.epochs))
        versions.append(int.from_bytes(owners.chunks.objects[newest][4:6], "big"))
    assert versions == [1, 2, 2]


async def test_removed_entries_leave_the_map(owners: Owners) -> None:
    storage = await owners.open()
    for number in range(1, 60):
        await storage.write(number, 0, [bytes(1_000)])
    for number in range(2, 60):
        await storage.delete(number)
    assert owners.maps is not None
    removed = [f"/{number:016x}/".encode() for number in range(2, 60)]

    def holds_removed() -> bool:
        runs = [bytes(owners.chunks.objects[name]) for name in owners.names(f"{LAYOUT.maps}shared/r/")]
        return any(key in run for run in runs for key in removed)

    assert holds_removed()
    # How many flushes the removals took is a matter of time: runs are merged once the newer ones have as many bytes.
    for length in range(1_000, 1_500):
        await collect_all(storage)
        await storage.write(1, length, [b"x"])
        await owners.maps.merge_waiting()
        if not holds_removed():
            break
    else:
        pytest.fail("entries that were removed are in the map still")


async def removing_owner(owners: Owners) -> RollingStorage:
    """An owner of one segment, of whose manifests, all entries, one is removed and waits: the base and the last of two
    deltas stay."""
    storage = await owners.open()
    for offset in range(3):
        await storage.write(1, offset, [b"x"])
    await collect_all(storage)
    assert len(await names_in(storage, LAYOUT.manifests)) == 2
    return storage


async def write_in_turns(storage: RollingStorage, per_turn: float) -> int:
    """Write to 39 segments, the first of which begins at once; returns the number of flushes."""
    before = storage.shared.flushes

    async def write_later(number: int) -> None:
        for _ in range(int(number / per_turn)):
            await asyncio.sleep(0)
        await storage.write(number, 0, [b"x"])

    await asyncio.gather(*(write_later(number) for number in range(1, 40)))
    return storage.shared.flushes - before


async def test_changes_that_come_within_a_few_turns_are_one_flush(owners: Owners) -> None:
    """As those that fell due together: their writes begin a few in each turn of the event loop."""
    assert await write_in_turns(await owners.open(), 2) == 1


async def test_a_flush_waits_for_so_many_changes_only(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "gatherings_max", 2)
    assert await write_in_turns(await owners.open(), 0.5) > 1


async def test_a_removal_joins_the_next_flush(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "removal_time_s", 60.0)
    storage = await removing_owner(owners)
    before = storage.shared.flushes
    for offset in range(3, 13):
        await storage.write(1, offset, [b"x"])
        await collect_all(storage)
    assert storage.shared.flushes == before + 10
    await storage.shared.settle()
    assert len(await names_in(await owners.open(), LAYOUT.manifests)) == 2


async def test_a_removal_has_a_flush_of_its_own_when_none_comes(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "removal_time_s", 0.01)
    storage = await removing_owner(owners)
    before = storage.shared.flushes
    await eventually(lambda: storage.shared.flushes > before)
    assert len(await names_in(await owners.open(), LAYOUT.manifests)) == 2


async def test_a_removal_waits_its_own_time_behind_others_that_were_flushed(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "gathering_time_s", 0.0)
    owners.clock = clock = ManualClock()
    storage = await removing_owner(owners)
    await clock.advance(shared_objects.removal_time_s - 1)
    await storage.write(1, 3, [b"x"])  # takes the first removal, and leaves another one
    await collect_all(storage)
    before = storage.shared.flushes
    await clock.advance(2)
    assert storage.shared.flushes == before
    await clock.advance(shared_objects.removal_time_s)
    assert storage.shared.flushes == before + 1


async def test_many_removals_are_flushed_at_once(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "removal_time_s", 60.0)
    monkeypatch.setattr(shared_objects, "group_changes_max", 4)
    storage = await owners.open()
    for number in range(1, 5):
        await storage.write(number, 0, [b"x"])
    before = storage.shared.flushes
    for name in await names_in(storage, LAYOUT.chunks):
        await storage.shared.delete_all([name])
    await eventually(lambda: storage.shared.flushes > before)
    assert await names_in(await owners.open(), LAYOUT.chunks) == []


async def generation_over(owners: Owners, monkeypatch: pytest.MonkeyPatch, *, shares: bool) -> RollingStorage:
    """An owner with a journal that waits for the removal of segment 1's only chunk."""
    monkeypatch.setattr(change_journal, "generation_ids_max", 1)
    storage = await owners.open(shares=shares)
    await storage.sweeper.sweep()  # from here on journals suffice
    await storage.write(1, 0, [b"x"])
    await storage.truncate(1, 1)
    await storage.write(2, 0, [b"x"])  # begins the next generation
    assert len(owners.names(LAYOUT.journals)) == 2
    return storage


@pytest.mark.parametrize(("shares", "barriers"), [(True, 2), (False, 1)])
async def test_a_journal_goes_behind_one_more_barrier_where_removals_are_flushed(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, shares: bool, barriers: int
) -> None:
    storage = await generation_over(owners, monkeypatch, shares=shares)
    owners.barriers = 0
    await storage.garbage.collect()
    assert owners.barriers == barriers
    assert len(owners.names(LAYOUT.journals)) == 1
    assert await names_in(await owners.open(), LAYOUT.chunks_of(1)) == []


async def collect_in_vain(storage: RollingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        refuse_flushes(storage, patched, Unavailable("Tier 2 is away"))
        with pytest.raises(Unavailable):
            await storage.garbage.collect()


async def garbage_of_both_kinds(owners: Owners) -> tuple[RollingStorage, str, str]:
    """An owner with a group of garbage, first an entry and then an object, and their names."""
    storage = await owners.open()
    await storage.write(1, 0, [b"x"])
    await storage.write(2, 0, [bytes(LARGE)])
    (entry,) = await names_in(storage, LAYOUT.chunks_of(1))
    (large,) = owners.names(LAYOUT.chunks_of(2))
    storage.garbage.discard([entry, large])
    return storage, entry, large


async def test_an_object_goes_once_entries_before_it_are_gone_for_good(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, entry, large = await garbage_of_both_kinds(owners)
    for _ in range(2):
        await collect_in_vain(storage, monkeypatch)
        assert large in owners.chunks.objects
    await collect_all(storage)
    assert large not in owners.chunks.objects
    assert entry not in await names_in(await owners.open(), LAYOUT.chunks)


async def test_an_object_stays_if_entries_before_it_went_too_late_to_count(owners: Owners) -> None:
    zombie, entry, large = await garbage_of_both_kinds(owners)
    owners.after_barrier = owners.open  # overtaken before the flush that removes the entry
    with pytest.raises(Fenced):
        await collect_all(zombie)
    assert entry in await names_in(await owners.open(), LAYOUT.chunks)
    assert large in owners.chunks.objects


@pytest.mark.parametrize("fails_first", [False, True])
async def test_groups_of_both_kinds_settle_together(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, fails_first: bool
) -> None:
    storage = await owners.open()
    await asyncio.gather(*(storage.write(number, 0, [b"x"]) for number in range(1, 41)))
    objects = [LAYOUT.chunk(ChunkId(50, 1, placed_number(number, is_entry=False))) for number in range(1, 42)]
    for entry, large in zip(await names_in(storage, LAYOUT.chunks), objects[1:], strict=True):
        storage.garbage.discard([entry, large])
    storage.garbage.discard_last(objects[:1])
    if fails_first:
        await collect_in_vain(storage, monkeypatch)
    owners.barriers, before = 0, storage.shared.flushes
    await storage.garbage.collect()
    assert [info async for info in owners.chunks.list(LAYOUT.chunks)] == []
    assert (owners.barriers, storage.shared.flushes - before) == (3, 1), "in front of all, and behind what each settled"


async def test_a_journal_stays_if_the_removals_came_too_late_to_count(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = await generation_over(owners, monkeypatch, shares=True)
    owners.after_barrier = owners.open  # overtaken before the flush that removes the chunk
    with pytest.raises(Fenced):
        await collect_all(zombie)
    later = await owners.open()
    assert len(await names_in(later, LAYOUT.chunks_of(1))) == 1
    await later.sweeper.sweep()
    await collect_all(later)
    await later.shared.settle()
    assert await names_in(await owners.open(), LAYOUT.chunks_of(1)) == []


@pytest.mark.parametrize("shares", [True, False])
async def test_a_tombstone_stays_until_entries_that_it_replaced_are_gone_for_good(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    """It is an entry, too, or an object; the owner that stored it ended before it deleted anything."""
    first = await owners.open()
    await first.write(1, 0, [b"x"])
    second = await owners.open(shares=shares)
    await second.write(2, 0, [b"x"])
    await second.concat(2, 1, 1)
    third = await owners.open()
    await third.sweeper.sweep()
    with monkeypatch.context() as patched:
        refuse_flushes(third, patched, Unavailable("Tier 2 is away"))
        for _ in range(3):
            with contextlib.suppress(Unavailable):
                await third.garbage.collect()
    assert await (await owners.open()).state(1) is None
    last = await owners.open()
    await last.sweeper.sweep()
    await collect_all(last)
    await last.shared.settle()
    assert await names_in(await owners.open(), LAYOUT.manifests_of(1)) == []
    assert await last.read(2, 0, 2) == b"xx"


async def test_a_copy_of_all_objects_by_name_is_read_without_the_map(owners: Owners) -> None:
    """As a restored backup has it: names of entries, and objects of that name."""
    first = await owners.open()
    await asyncio.gather(*(first.write(number, 0, [b"%d" % number]) for number in range(1, 50)))
    reader = SharedObjectsReader(owners.chunks, LAYOUT, SystemClock())
    copy = CountingChunks()
    for prefix in (LAYOUT.epochs, LAYOUT.manifests, LAYOUT.chunks):
        for info in [info async for info in reader.list(prefix)]:
            await copy.put(info.name, [await reader.get(info.name, 0, info.length)])
    owners.chunks = copy
    for shares in (True, False):
        storage = await owners.open(shares=shares)
        assert await storage.read(33, 0, 2) == b"33"
    await storage.delete(33)
    await collect_all(storage)
    assert not owners.names(LAYOUT.chunks_of(33)) and not owners.names(LAYOUT.manifests_of(33))


async def test_a_reader_sees_what_the_owner_sees(owners: Owners) -> None:
    storage = await owners.open()
    reader = SharedObjectsReader(owners.chunks, LAYOUT, SystemClock())
    for number in range(1, 40):
        await storage.write(number % 7 + 1, (number - 1) // 7, [b"x"])
        if number % 10 == 0:
            assert owners.maps is not None
            await owners.maps.merge_waiting()
            await collect_all(storage)
        for prefix in (LAYOUT.chunks, LAYOUT.manifests_of(3)):
            found = [info.name async for info in reader.list(prefix)]
            own = await names_in(storage, prefix)
            assert found == sorted(found)
            assert set(own) <= set(found)  # what the owner removed of late is still there for others
            for name in own:
                length = (await reader.info(name)).length
                assert await reader.get(name, 0, length) == await storage.shared.get(name, 0, length)


async def test_a_reader_sees_a_segment_whose_manifest_becomes_an_entry_between_its_two_looks(owners: Owners) -> None:
    first = await owners.open()
    await first.write(1, 0, [bytes(LARGE)])
    owner = await owners.open()
    reader = SharedObjectsReader(owners.chunks, LAYOUT, SystemClock())

    async def change() -> None:
        await owner.write(1, LARGE, [b"small"])
        await collect_all(owner)

    owners.chunks.before_list = LAYOUT.manifests_of(1), change
    found = [info.name async for info in reader.list(LAYOUT.manifests_of(1))]
    assert found == await names_in(owner, LAYOUT.manifests_of(1)) != []
    assert not owners.names(LAYOUT.manifests_of(1))


async def test_damage_to_the_map_damages_the_segments_in_it_only(owners: Owners) -> None:
    first = await owners.open()
    await first.write(1, 0, [b"entry"])
    await first.write(2, 0, [bytes(LARGE)])
    for name in owners.names(f"{LAYOUT.maps}shared/r/"):
        data = bytearray(owners.chunks.objects[name])
        data[6] ^= 1
        owners.chunks.objects[name] = bytes(data)
    for _ in range(3):
        storage = await owners.open()
        assert not storage.shared.is_sharing
        with pytest.raises(SegmentDamaged):
            await storage.state(1)
        await storage.write(2 + owners.epoch, 0, [b"new"])
        assert await storage.read(2 + owners.epoch, 0, 3) == b"new"
        assert await storage.read(3 + 1, 0, 3) == b"new"


async def test_a_segment_in_a_damaged_map_can_be_deleted_and_goes_once_the_map_is_whole(owners: Owners) -> None:
    first = await owners.open()
    await first.sweeper.sweep()  # from here on journals suffice
    await first.write(1, 0, [b"entry"])
    await first.write(1, 5, [bytes(LARGE)])
    whole = {name: owners.chunks.objects[name] for name in owners.names(f"{LAYOUT.maps}shared/r/")}
    owners.chunks.objects.update({name: data[:6] + bytes([data[6] ^ 1]) + data[7:] for name, data in whole.items()})
    second = await owners.open()
    for _ in range(2):
        await second.delete(1)
        await collect_all(second)
    owners.chunks.objects.update(whole)
    for _ in range(3):
        storage = await owners.open()
        assert await storage.state(1) is None
        await storage.sweeper.sweep()
        await collect_all(storage)
    assert not await names_in(storage, LAYOUT.chunks_of(1))
    assert not await names_in(storage, LAYOUT.manifests_of(1))


async def mixed_and_damaged(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bytes]:
    """A segment with an entry and a large chunk, in a map that the next owner can read, and not change; the name of the
    damaged object, and its bytes as they were."""
    monkeypatch.setattr(change_journal, "generation_ids_max", 1)
    first = await owners.open()
    await first.sweeper.sweep()  # from here on journals suffice
    await first.write(1, 0, [b"small"])
    await first.write(1, 5, [bytes(LARGE)])
    await first.write(9, 0, [b"x"])  # begins the next generation of journals
    await collect_all(first)
    name = min(owners.names(f"{LAYOUT.maps}shared/r/"))  # with the first epoch alone
    data = owners.chunks.objects[name]
    owners.chunks.objects[name] = data[:6] + bytes([data[6] ^ 1]) + data[7:]
    return name, data


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_leads_to_entries_of_a_damaged_map_stays(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """Else they would be there for good once the map is whole again, and a deleted segment with them."""
    name, data = await mixed_and_damaged(owners, monkeypatch)
    second = await owners.open()
    assert not second.shared.is_sharing
    await (second.delete(1) if deleted else second.truncate(1, LARGE + 5))
    for number in range(2, 5):  # each begins the next generation of journals
        await second.write(number, 0, [b"x"])
    await collect_all(second)
    assert not second.garbage.waiting_names
    assert not owners.names(LAYOUT.chunks_of(1)), "an object that leads to no other goes"
    owners.chunks.objects[name] = data
    third = await owners.open()
    state = StorageState(1, LARGE + 5, LARGE + 5, is_sealed=False)
    assert await third.state(1) == (None if deleted else state)
    await third.sweeper.sweep()
    await collect_all(third)
    await third.shared.settle()
    assert await names_in(await owners.open(), LAYOUT.chunks_of(1)) == []
    manifests = await names_in(await owners.open(), LAYOUT.manifests_of(1))
    assert len(manifests) == (0 if deleted else 1)


async def refused_in_front(owners: Owners, monkeypatch: pytest.MonkeyPatch, error: PravegaError) -> RollingStorage:
    """An owner of six segments, with removals of more than one flush that wait, and a map that cannot be flushed."""
    monkeypatch.setattr(shared_objects, "group_changes_max", 4)
    storage = await owners.open()
    for number in range(1, 7):
        await storage.write(number, 0, [b"data"])

    refuse_flushes(storage, monkeypatch, error)
    for name in await names_in(storage, LAYOUT.chunks):
        await storage.shared.delete_all([name])
    return storage


@pytest.mark.parametrize("error", [DataCorruption("a block of a run"), Unavailable("Tier 2 is away")])
async def test_a_flush_of_removals_that_fails_is_known_to_those_that_wait_behind_it(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, error: PravegaError
) -> None:
    storage = await refused_in_front(owners, monkeypatch, error)
    async with asyncio.timeout(5.0):
        with pytest.raises(type(error)):
            await storage.shared.settle()
        results = await asyncio.gather(
            *(storage.write(number, 4, [b"more"]) for number in range(1, 7)), return_exceptions=True
        )
    assert {type(result) for result in results} == {type(error)}


async def test_removals_that_could_not_be_flushed_are_flushed_later(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        storage = await refused_in_front(owners, patched, Unavailable("Tier 2 is away"))
        async with asyncio.timeout(5.0):
            with pytest.raises(Unavailable):
                await storage.write(1, 4, [b"more"])
    assert await storage.shared.settle()
    assert await names_in(await owners.open(), LAYOUT.chunks) == []


async def test_removals_that_could_not_be_flushed_need_nothing_else_to_be_tried_again(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "removal_time_s", 0.01)
    failed = 0

    async def refuse(changes: object, stamp: object) -> None:
        nonlocal failed
        failed += 1
        raise Unavailable("Tier 2 is away")

    storage = await removing_owner(owners)
    with monkeypatch.context() as patched:
        patched.setattr(storage.shared._map, "flush", refuse)  # private: the map of the owner
        await eventually(lambda: failed > 2, "a flush that failed is tried again")
    before = storage.shared.flushes
    await eventually(lambda: storage.shared.flushes > before, "the removals are flushed")
    assert not storage.shared._removed  # private: what a later owner would find again
    assert len(await names_in(await owners.open(), LAYOUT.manifests)) == 2
