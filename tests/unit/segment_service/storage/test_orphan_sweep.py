"""A sweep looks at what journals name, and finds all that earlier owners left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from pravega_common.errors import Fenced, SegmentDamaged, Unavailable, UnknownOutcome
from pravega_common.runtime import failpoints
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.contracts.segment_storage import EpochMark
from segment_service.storage import (
    change_journal,
    compaction,
    foreign_owners,
    full_sweep,
    orphan_sweep,
    rolling_storage,
)
from segment_service.storage.chunk_names import ChunkId, ForeignOwner, Layout
from segment_service.storage.epoch_marks import encode_mark
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.segment_sweep import MergeUnfinished, NothingNeeded
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.log_states import some_log
from tests.support.tier2_garbage import collect_all

LAYOUT = Layout(1)
KEPT = 3
"""Earlier epochs whose journals stay in these tests."""
LEFT = "sweep is left to the next owner"


class CountingChunks(InMemoryChunkStorage):
    """Counts listings and the names that they give."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.listed = 0

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        self.listings += 1
        async for info in super().list(prefix):
            self.listed += 1
            yield info


class ChangedChunks(CountingChunks):
    """Lists what there was when a listing began, without what is deleted since, as shared objects are listed."""

    change: Callable[[], Awaitable[None]] | None = None
    """Done behind the first manifest that is listed."""

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        async for info in super().list(prefix):
            if info.name not in self.objects:
                continue
            yield info
            if self.change is not None and prefix == LAYOUT.manifests:
                change, self.change = self.change, None
                await change()


class LengthsOfAStart(NothingNeeded):
    """The lengths that a container needs, before it has read its table."""

    def __init__(self) -> None:
        self.known = asyncio.Event()

    async def wait_known(self) -> None:
        await self.known.wait()

    async def length(self, segment_id: int) -> int:
        await self.wait_known()
        return 0


class LengthsDuringAMerge(NothingNeeded):
    """The lengths of a container whose log merges a segment that Tier 2 may have moved already."""

    def __init__(self, source_id: int, length: int) -> None:
        self._source = {source_id: length}

    def active(self) -> dict[int, int]:
        return dict(self._source)

    async def length(self, segment_id: int) -> int:
        return self._source.get(segment_id, 0)

    def is_moving(self, segment_id: int) -> bool:
        return segment_id in self._source

    def replayed(self) -> None:
        """The storage writer found that Tier 2 had done the merge."""
        self._source.clear()


class Crash(BaseException):
    """The end of an owner."""


class TurningClock(ManualClock):
    """Sleeping takes no time."""

    async def sleep(self, delay_s: float) -> None:
        """Return at once."""


class Owners:
    """Opens owners one after the other; a barrier passes for the last one only."""

    def __init__(self, chunks: CountingChunks | None = None) -> None:
        self.chunks = chunks or CountingChunks()
        self.clock = TurningClock()
        self.epoch = 0

    async def open(self, **options: Any) -> RollingStorage:
        self.epoch += 1
        storage = RollingStorage(self.chunks, 1, self.clock, background=False, **options)
        await storage.start(self.epoch, self._barrier_of(self.epoch), some_log)
        return storage

    async def open_and_sweep(self) -> RollingStorage:
        storage = await self.open()
        await storage.sweeper.sweep()
        await collect_all(storage)
        return storage

    def _barrier_of(self, epoch: int) -> Callable[[], Awaitable[None]]:
        async def barrier() -> None:
            if epoch < self.epoch:
                raise Fenced(f"{epoch} < {self.epoch}")

        return barrier

    def names(self, kind: str) -> list[str]:
        return sorted(name for name in self.chunks.objects if name.startswith(f"{LAYOUT.prefix}{kind}/"))


@pytest.fixture
def owners() -> Owners:
    return Owners()


@pytest.fixture(autouse=True)
def _few_epochs_stay(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(orphan_sweep, "kept_epochs_max", KEPT)
    yield
    failpoints.disarm_all()


async def crash_at(name: str, work: Awaitable[object]) -> None:
    def crash() -> None:
        raise Crash

    failpoints.arm(name, crash)
    with pytest.raises(Crash):
        await work
    failpoints.disarm_all()


async def merged(storage: RollingStorage, target_id: int, source_id: int) -> None:
    """Two segments of four and two bytes that become one."""
    await storage.write(target_id, 0, [b"into"])
    await storage.write(source_id, 0, [b"it"])
    await storage.concat(target_id, 4, source_id)
    await collect_all(storage)


def test_names() -> None:
    names = [LAYOUT.journal(9, 3), LAYOUT.foreign_owner(ForeignOwner(7, 8, 9, 3))]
    assert names == [
        "c00001/j/0000000000000009-0000000000000003",
        "c00001/f/0000000000000007/0000000000000008-0000000000000009-0000000000000003",
    ]
    assert [LAYOUT.epoch_in(name) for name in names] == [9, 9]
    assert LAYOUT.parse_foreign_owner(names[1]) == ForeignOwner(7, 8, 9, 3)


async def _cost_of_a_sweep(existing: int) -> tuple[int, int]:
    """Listings, and names listed, of the sweep after a crash that three segments were part of."""
    owners = Owners()
    storage = await owners.open_and_sweep()
    for segment_id in range(1, existing + 1):
        await storage.write(segment_id, 0, [b"data"])
    for _ in range(KEPT + 2):  # what they wrote is long ago
        storage = await owners.open_and_sweep()
        for segment_id in (20_001, 20_002, 20_003):
            state = await storage.state(segment_id)
            await storage.write(segment_id, state.length if state else 0, [b"data"])
        await collect_all(storage)
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, storage.write(20_002, 4 * (KEPT + 2), [b"lost"]))
    storage = await owners.open()
    owners.chunks.listings = owners.chunks.listed = 0
    assert (await storage.sweeper.sweep()).orphans == 1
    return owners.chunks.listings, owners.chunks.listed


async def test_its_cost_is_the_same_however_many_segments_exist() -> None:
    few, many = await _cost_of_a_sweep(10), await _cost_of_a_sweep(10_000)
    assert few == many
    assert few[0] < 20
    assert few[1] < 50


async def test_a_container_of_a_program_without_journals_is_swept_as_a_whole_once(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await one.write(9, 0, [b"data"])
    for name in [*owners.names("j"), *owners.names("f")]:
        await owners.chunks.delete_all([name])
    orphan = LAYOUT.chunk(ChunkId(9, 1, 1_000))
    await owners.chunks.put(orphan, [b"left"])
    await owners.chunks.put(LAYOUT.epoch(1, 2_000), [encode_mark(EpochMark(1, some_log()))])

    two = await owners.open()
    assert not (await two.newest_mark()).has_journals  # type: ignore[union-attr]
    assert (await two.sweeper.sweep()).orphans == 1
    await collect_all(two)
    assert orphan not in owners.chunks.objects
    assert (await two.newest_mark()).has_journals  # type: ignore[union-attr]
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(8, 7)]

    await owners.chunks.put(orphan, [b"left again, and no journal names it"])
    three = await owners.open()
    assert (await three.newest_mark()).has_journals  # type: ignore[union-attr]
    assert (await three.sweeper.sweep()).orphans == 1  # the second one noted it
    assert await three.read(7, 0, 6) == b"intoit"


async def test_what_a_sweep_of_all_found_is_found_again_after_a_crash(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await one.write(9, 0, [b"data"])
    await one.write(8, 0, [b"gone"])
    await crash_at(rolling_storage.DELETE_TOMBSTONE_STORED, one.delete(8))
    for name in owners.names("j"):
        await owners.chunks.delete_all([name])
    await owners.chunks.put(LAYOUT.chunk(ChunkId(9, 1, 1_000)), [b"left"])

    two = await owners.open(trusts_journals=False)
    await two.write(9, 4, [b"more"])
    await owners.clock.advance(change_journal.generation_time_max_s)
    await two.write(10, 0, [b"in another generation"])
    await collect_all(two)
    assert await two.sweeper.sweep() == (1, 1)  # and it dies before it deletes

    three = await owners.open_and_sweep()
    assert (await three.newest_mark()).has_journals  # type: ignore[union-attr]
    assert len(owners.names("d")) == 3
    assert not [name for name in owners.names("m") if f"/{8:016x}/" in name]
    assert await three.read(9, 0, 8) == b"datamore"


async def test_a_damaged_journal_lets_all_be_swept(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(9, 0, [b"lost"]))
    (journal,) = owners.names("j")
    owners.chunks.objects[journal] = b"PVCJ and something else" * 3
    two = await owners.open_and_sweep()
    assert not owners.names("d")
    assert await two.state(9) is None
    assert journal not in owners.chunks.objects


async def test_a_container_that_was_restored_is_swept_as_a_whole(owners: Owners) -> None:
    await owners.open_and_sweep()
    restoring = await owners.open(trusts_journals=False)
    assert not (await restoring.newest_mark()).has_journals  # type: ignore[union-attr]
    last = await owners.open()
    assert not (await last.newest_mark()).has_journals  # type: ignore[union-attr]


async def test_moved_chunks_are_found_at_their_owner_however_often_they_move(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await one.write(9, 0, [b"last"])
    await one.concat(9, 4, 7)
    await collect_all(one)
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(7, 9), (8, 9)]
    for _ in range(KEPT + 2):
        one = await owners.open_and_sweep()
        async with one._journal.noted(7, 8):  # private: the segments are looked at again
            pass
    assert await one.read(9, 0, 10) == b"lastintoit"
    await one.truncate(9, 9)
    await collect_all(one)
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(8, 9)]
    await one.delete(9)
    await collect_all(one)
    assert not [*owners.names("f"), *owners.names("d"), *owners.names("m")]


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("target_id", [6, 9])
async def test_a_sweep_that_begins_in_the_middle_of_a_merge_takes_nothing(
    owners: Owners, target_id: int, is_full: bool
) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await one.write(target_id, 0, [b"last"])
    two = await owners.open(trusts_journals=not is_full)
    passes, go_on = two.garbage._barrier, asyncio.Event()  # private: the barrier of an owner that has started
    assert passes is not None

    async def waits() -> None:
        await go_on.wait()
        await passes()

    two.garbage._barrier = waits
    merging = asyncio.create_task(two.concat(target_id, 4, 7))
    for _ in range(20):
        await asyncio.sleep(0)
    sweeping = asyncio.create_task(two.sweeper.sweep())
    for _ in range(20):
        await asyncio.sleep(0)
    go_on.set()
    await merging
    assert (await sweeping).orphans == 0
    await collect_all(two)
    assert await two.read(target_id, 0, 10) == b"lastintoit"


@pytest.mark.parametrize("is_announced", [False, True])
async def test_an_owner_that_changes_while_it_is_listed_keeps_moved_chunks(is_announced: bool) -> None:
    """The listing has its base, which says nothing of chunks of others, and no delta, nor what replaces both."""
    chunks = ChangedChunks()
    owners = Owners(chunks)
    one = await owners.open()
    await merged(one, 7, 8)
    if not is_announced:
        await chunks.delete_all([owners.names("f")[0]])  # as older programs did
    two = await owners.open(trusts_journals=False)

    async def change() -> None:
        await two.write(7, 6, [b"more"])
        await collect_all(two)

    chunks.change = change
    assert (await two.sweeper.sweep()).orphans == 0
    await collect_all(two)
    assert await two.read(7, 0, 10) == b"intoitmore"
    assert len(owners.names("f")) == 1


async def test_an_owner_that_joins_moved_chunks_is_announced_no_more(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 2)
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await one.write(7, 6, [b"more"])
    assert await one.compactor.compact(7)
    await collect_all(one)
    assert not owners.names("f")
    assert await one.read(7, 0, 10) == b"intoitmore"


async def test_an_announced_owner_that_got_nothing_is_claimed_and_forgotten(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await one.write(7, 0, [b"into"])
    await one.write(8, 0, [b"it"])
    await crash_at(foreign_owners.ANNOUNCED, one.concat(7, 4, 8))
    assert len(owners.names("f")) == 1
    two = await owners.open_and_sweep()
    assert not owners.names("f")
    zombie = one
    await zombie._owners.announce(7, zombie._manifests.cached(8).chunks)  # type: ignore[union-attr]  # private: late
    assert (await two.state(7)).length == 4  # type: ignore[union-attr]
    assert all(LAYOUT.epoch_in(name) == 2 for name in owners.names("m") if f"/{7:016x}/" in name)
    await two.concat(7, 4, 8)
    three = await owners.open_and_sweep()
    assert await three.read(7, 0, 6) == b"intoit"


async def test_an_announcement_that_was_lost_is_made_again_before_chunks_are_judged(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    (announcement,) = owners.names("f")
    await owners.chunks.delete_all([announcement])
    for _ in range(KEPT + 2):
        last = await owners.open_and_sweep()
        assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(8, 7)]
    assert await last.read(7, 0, 6) == b"intoit"


async def test_an_owner_in_the_middle_of_its_deletion_is_not_announced_again(owners: Owners) -> None:
    """Its announcements go before its tombstone, and nobody would look for one that was made again."""
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    two = await owners.open()
    await two.delete(7)
    await owners.chunks.delete_all(owners.names("f"))
    with capture_logs() as logs:
        await two.sweeper.sweep()
    assert not [line for line in logs if line["log_level"] == "error"]
    await collect_all(two)
    assert not owners.names("f")


async def test_an_owner_that_dies_before_all_are_announced_again_has_judged_no_chunk(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await merged(one, 9, 10)
    for announcement in owners.names("f"):
        await owners.chunks.delete_all([announcement])
    two = await owners.open()
    await crash_at(foreign_owners.ANNOUNCED, two.sweeper.sweep())
    assert len(owners.names("f")) == 1
    await collect_all(two)
    three = await owners.open_and_sweep()
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(8, 7), (10, 9)]
    assert [await three.read(target_id, 0, 6) for target_id in (7, 9)] == [b"intoit"] * 2


async def test_an_object_that_asks_for_it_lets_all_be_announced_again(owners: Owners) -> None:
    """The remedy that ``store doctor`` names; no journal names the segments any more."""
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    for name in [*owners.names("f"), *owners.names("j")]:
        await owners.chunks.delete_all([name])
    await owners.chunks.put(LAYOUT.journal_of_all, [b"all"])
    two = await owners.open_and_sweep()
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(8, 7)]
    assert LAYOUT.journal_of_all not in owners.chunks.objects
    assert await two.read(7, 0, 6) == b"intoit"


async def test_what_a_zombie_writes_after_a_sweep_is_found_by_a_later_one(owners: Owners) -> None:
    zombie = await owners.open_and_sweep()
    await zombie.write(7, 0, [b"data"])
    for _ in range(KEPT - 1):
        await owners.open_and_sweep()
    await zombie._manifests.put_chunk(7, [b"late"])  # private: a step of a write
    await zombie.write(8, 0, [b"late"])
    assert len(owners.names("d")) == 3
    last = await owners.open()
    assert (await last.sweeper.sweep()).orphans == 1
    await collect_all(last)
    assert len(owners.names("d")) == 2  # the log has 8, as far as Tier 2 knows
    assert await last.read(8, 0, 4) == b"late"


@pytest.mark.parametrize("is_whole", [False, True], ids=["by journals", "of all segments"])
async def test_the_source_of_a_merge_that_is_replayed_is_not_damaged_and_swept_later(
    owners: Owners, is_whole: bool
) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    left = LAYOUT.chunk(ChunkId(8, 1, 1_000))
    await owners.chunks.put(left, [b"of the source, put late"])
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(9, 0, [b"lost"]))

    two = await owners.open(trusts_journals=not is_whole)
    lengths = LengthsDuringAMerge(8, 2)
    damaged: list[int] = []
    two.watch_damage(lengths, lambda segment_id, offset, length, error: damaged.append(segment_id))
    with pytest.raises(MergeUnfinished):
        await two.sweeper.sweep()
    assert not damaged
    await collect_all(two)
    assert left in owners.chunks.objects
    others = [name for name in owners.names("d") if LAYOUT.parse_chunk(name).segment_id == 9]
    assert len(others) == is_whole
    lengths.replayed()
    assert (await two.sweeper.sweep()).orphans == 1 + is_whole
    await collect_all(two)
    assert left not in owners.chunks.objects
    assert [LAYOUT.parse_chunk(name).segment_id for name in owners.names("d")] == [7, 8]
    assert await two.read(7, 0, 6) == b"intoit"
    assert not damaged


@pytest.mark.parametrize(
    ("stray", "is_whole"),
    [
        (LAYOUT.chunks_of(9) + "copy", False),
        (LAYOUT.chunks_of(9) + "copy", True),
        (LAYOUT.foreign_owners_of(9) + "copy", False),
        (LAYOUT.chunks + "copy", True),
    ],
)
async def test_a_name_that_is_not_ours_ends_no_sweep_of_others(owners: Owners, stray: str, is_whole: bool) -> None:
    one = await owners.open_and_sweep()
    for segment_id in (8, 9, 10):
        await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(segment_id, 0, [b"lost"]))
    await owners.chunks.put(stray, [b"of an operator"])
    two = await owners.open(trusts_journals=not is_whole)
    is_judged = stray == LAYOUT.chunks + "copy"
    assert (await two.sweeper.sweep()).orphans == 2 + is_judged
    await collect_all(two)
    assert stray in owners.chunks.objects
    left = [name for name in owners.names("d") if name != stray]
    assert [LAYOUT.parse_chunk(name).segment_id for name in left] == ([] if is_judged else [9])
    await owners.chunks.delete_all([stray])
    await owners.open_and_sweep()
    assert not owners.names("d")


async def test_an_announcement_beside_a_name_that_is_not_ours_is_made_before_chunks_are_judged(owners: Owners) -> None:
    """Those for other segments are, and the chunks of this one are not judged."""
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    await one.write(10, 0, [b"too"])
    await one.concat(7, 6, 10)
    await collect_all(one)
    await owners.chunks.delete_all(owners.names("f"))
    stray = LAYOUT.foreign_owners_of(8) + "copy"
    await owners.chunks.put(stray, [])
    for _ in range(KEPT + 2):
        two = await owners.open_and_sweep()
        assert await two.read(7, 0, 9) == b"intoittoo"
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f") if name != stray] == [(10, 7)]


async def test_a_merge_that_never_ends_is_told_once_and_keeps_no_other_journals(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    for number in range(KEPT + 3):
        with capture_logs() as told:
            last = await owners.open()
            last.watch_damage(LengthsDuringAMerge(8, 2), lambda *_: None)
            await last.sweeper._run()  # private: the service's task
            await collect_all(last)
        assert [line["event"] for line in told if "sweep" in line["event"]] == ["sweep failed", LEFT]
        await last.write(20 + number, 0, [b"data"])
    named = [LAYOUT.parse_journal(name) for name in owners.names("j")]
    assert named[0] == 1, "the journal that names the source was deleted"
    assert len(set(named)) == 1 + KEPT + 1


async def test_journals_of_the_last_epochs_stay(owners: Owners) -> None:
    for number in range(1, KEPT + 4):
        storage = await owners.open_and_sweep()
        await storage.write(number, 0, [b"data"])
    assert [LAYOUT.parse_journal(name) for name in owners.names("j")] == [*range(3, KEPT + 4)]


async def test_journals_that_name_many_segments_go_earlier(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphan_sweep, "kept_epochs_max", 10)
    monkeypatch.setattr(orphan_sweep, "kept_epochs_min", 2)
    monkeypatch.setattr(orphan_sweep, "kept_ids_max", 3)
    for number in (1, 1, 1, 1, 2, 3, 4):
        storage = await owners.open_and_sweep()
        state = await storage.state(number)
        await storage.write(number, state.length if state else 0, [b"data"])
    await owners.open_and_sweep()
    assert [LAYOUT.parse_journal(name) for name in owners.names("j")] == [5, 6, 7]


async def test_a_sweep_that_gave_garbage_up_leaves_the_journals(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await owners.open_and_sweep()
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(9, 0, [b"lost"]))
    for number in range(KEPT):
        storage = await owners.open()
        await storage.write(number + 1, 0, [b"data"])
    sweeping = await owners.open()
    with monkeypatch.context() as patched:
        patched.setattr("segment_service.storage.garbage.waiting_names_max", 0)
        await sweeping.sweeper.sweep()
    await collect_all(sweeping)
    assert LAYOUT.parse_journal(owners.names("j")[0]) == 1
    assert any(f"/{9:016x}/" in name for name in owners.names("d"))
    await owners.open_and_sweep()
    assert LAYOUT.parse_journal(owners.names("j")[0]) == 3
    assert not any(f"/{9:016x}/" in name for name in owners.names("d"))


async def test_the_claim_on_a_segment_that_is_gone_goes_with_the_next_owner(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_journal, "generation_ids_max", 1)
    one = await owners.open_and_sweep()
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(9, 0, [b"lost"]))
    two = await owners.open_and_sweep()
    (claim,) = owners.names("m")
    assert LAYOUT.parse_manifest(claim).segment_id == 9
    await two.write(10, 0, [b"of another generation"])
    await collect_all(two)
    await owners.open_and_sweep()
    assert claim not in owners.chunks.objects


async def test_what_a_failed_change_left_is_found_after_a_long_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk whose manifest could not be stored is nobody's garbage: a put that was given up may still list it."""
    owners = Owners()
    storage = await owners.open_and_sweep()
    await storage.write(7, 0, [b"x"])
    put = owners.chunks.put

    async def put_no_manifest(name: str, data: Sequence[Buffer]) -> None:
        if "/m/" in name:
            raise Unavailable("Tier 2 is away")
        await put(name, data)

    with monkeypatch.context() as away:
        away.setattr(owners.chunks, "put", put_no_manifest)
        with pytest.raises(Unavailable):
            await storage.write(7, 1, [b"y"])
    await storage.write(7, 1, [b"y"])
    await owners.clock.advance(change_journal.generation_time_max_s)
    await storage.write(8, 0, [b"x"])
    await collect_all(storage)
    assert len([name for name in owners.chunks.objects if "/d/" in name]) == 4
    await owners.open_and_sweep()
    assert len([name for name in owners.chunks.objects if "/d/" in name]) == 3


class LatePuts:
    """Holds puts back while it is told so: they have no answer, and are done later."""

    def __init__(self, chunks: CountingChunks, monkeypatch: pytest.MonkeyPatch) -> None:
        self._put = chunks.put
        self._kind = ""
        self._held = FaultyChunkStorage(chunks, random.Random(1), ManualClock())
        monkeypatch.setattr(chunks, "put", self._hold_or_put)

    def hold_next(self, kind: str) -> None:
        """The next put of a name with this in it."""
        self._kind = kind

    async def land(self) -> None:
        assert not self._kind
        await self._held.land_late_puts()

    async def _hold_or_put(self, name: str, data: Sequence[Buffer]) -> None:
        if self._kind and self._kind in name:
            self._kind = ""
            self._held.put_late(name, data)
            raise UnknownOutcome(f"no answer for {name}")
        await self._put(name, data)


@pytest.fixture
def late(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> LatePuts:
    return LatePuts(owners.chunks, monkeypatch)


async def end_generation(owners: Owners, storage: RollingStorage, segment_id: int) -> None:
    """Change this one long after the others, of which the journal goes with their garbage."""
    await owners.clock.advance(change_journal.generation_time_max_s)
    await storage.write(segment_id, 0, [b"x"])
    await collect_all(storage)


async def _write_twice(storage: RollingStorage) -> None:
    await storage.write(7, 0, [b"x"])
    await storage.write(7, 1, [b"y"])


async def _delete(storage: RollingStorage) -> None:
    await storage.write(7, 0, [b"x"])
    await storage.delete(7)


async def _merge(storage: RollingStorage) -> None:
    await merged(storage, 7, 8)
    await storage.delete(7)


@pytest.mark.parametrize(
    ("kind", "change"), [("/d/", _write_twice), ("/m/", _write_twice), ("-t", _delete), ("/f/", _merge)]
)
async def test_a_put_without_an_answer_is_found_if_it_is_done_after_its_name_was_deleted(
    owners: Owners, late: LatePuts, kind: str, change: Callable[[RollingStorage], Awaitable[None]]
) -> None:
    storage = await owners.open_and_sweep()
    late.hold_next(kind)
    await change(storage)
    await end_generation(owners, storage, 9)
    await end_generation(owners, storage, 10)
    expected = {place: owners.names(place) for place in "dmf"}
    await late.land()
    assert {place: owners.names(place) for place in "dmf"} != expected
    for _ in range(3):  # the first claims what it takes away
        last = await owners.open_and_sweep()
    assert owners.names("d") == expected["d"]
    assert owners.names("f") == expected["f"]
    assert {LAYOUT.parse_manifest(name).segment_id for name in owners.names("m")} == {
        LAYOUT.parse_manifest(name).segment_id for name in expected["m"]
    }
    assert await last.read(10, 0, 1) == b"x"
    if change is _write_twice:
        assert await last.read(7, 0, 2) == b"xy"


async def test_manifests_that_come_back_without_their_base_go(owners: Owners, late: LatePuts) -> None:
    storage = await owners.open_and_sweep()
    await storage.write(7, 0, [b"x"])
    for offset in (1, 2):
        late.hold_next("-d")
        await storage.write(7, offset, [b"y"])
    await storage.delete(7)
    await end_generation(owners, storage, 9)
    await late.land()
    assert len(owners.names("m")) == 3
    for _ in range(3):
        await owners.open_and_sweep()
    assert [LAYOUT.parse_manifest(name).segment_id for name in owners.names("m")] == [9]


async def test_segments_can_be_written_while_a_sweep_waits_for_what_the_container_needs(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    two = await owners.open()
    lengths = LengthsOfAStart()
    two.watch_damage(lengths, lambda segment_id, offset, length, error: None)
    sweep = asyncio.create_task(two.sweeper.sweep())
    for _ in range(50):
        await asyncio.sleep(0)
    async with asyncio.timeout(5.0):  # a full Tier 1 gets room by it, and only then the container reads its table
        await two.write(7, 6, [b"more"])
        await two.write(8, 0, [b"again"])
    assert not sweep.done()
    lengths.known.set()
    await sweep
    assert await two.read(7, 0, 10) == b"intoitmore"


class Lengths(NothingNeeded):
    """The lengths that a container needs of its segments."""

    def __init__(self, **needed: int) -> None:
        self._needed = {int(name[1:]): length for name, length in needed.items()}

    def active(self) -> dict[int, int]:
        return dict(self._needed)

    async def length(self, segment_id: int) -> int:
        return self._needed.get(segment_id, 0)


def damage(owners: Owners, segment_id: int) -> None:
    """Flip a bit of each manifest of a segment."""
    for name in owners.names("m"):
        if LAYOUT.parse_manifest(name).segment_id == segment_id:
            data = bytearray(owners.chunks.objects[name])
            data[-1] ^= 1
            owners.chunks.objects[name] = bytes(data)


async def test_damaged_manifests_that_a_sweep_of_all_finds_are_all_reported_and_no_chunk_is_judged(
    owners: Owners,
) -> None:
    one = await owners.open_and_sweep()
    for target_id, source_id in ((7, 8), (9, 10), (11, 12)):
        await merged(one, target_id, source_id)
    await one.write(13, 0, [b"gone"])
    await crash_at(rolling_storage.DELETE_TOMBSTONE_STORED, one.delete(13))
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(14, 0, [b"lost"]))
    await owners.chunks.delete_all(owners.names("f"))
    for segment_id in (7, 9):
        damage(owners, segment_id)
    two = await owners.open(trusts_journals=False)
    reported: list[tuple[int, int, int]] = []
    two.watch_damage(Lengths(s7=6, s9=6, s11=6), lambda *damaged: reported.append(damaged[:3]))
    with pytest.raises(SegmentDamaged, match="segment 7"):
        await two.sweeper.sweep()
    assert reported == [(7, 5, 1), (9, 5, 1)]
    assert two.unswept_segments == 2
    await collect_all(two)
    assert [LAYOUT.parse_chunk(name).segment_id for name in owners.names("d")] == [*range(7, 13), 14]
    assert [LAYOUT.parse_foreign_owner(name)[:2] for name in owners.names("f")] == [(12, 11)]
    for segment_id in (7, 9):
        damage(owners, segment_id)
    assert (await two.sweeper.sweep()).orphans == 1
    assert two.unswept_segments == 0
    assert [await two.read(target_id, 0, 6) for target_id in (7, 9, 11)] == [b"intoit"] * 3


@pytest.mark.parametrize("target_id", [7, 9])
async def test_a_sweep_of_all_keeps_moved_chunks_where_the_manifest_that_lists_them_is_lost(
    owners: Owners, target_id: int
) -> None:
    """The one before it, on which it was based, is there, and lists no chunk of others."""
    one = await owners.open_and_sweep()
    await merged(one, target_id, 8)
    before, lost = owners.names("m")
    assert [LAYOUT.parse_manifest(name).kind.is_foreign for name in (before, lost)] == [False, True]
    data = owners.chunks.objects[lost]
    await owners.chunks.delete_all([lost])
    two = await owners.open(trusts_journals=False)
    two.watch_damage(Lengths(**{f"s{target_id}": 6}), lambda *damaged: None)
    assert await two.sweeper.sweep() == (0, 0)
    assert two.unswept_segments == 2
    await collect_all(two)
    await owners.chunks.put(lost, [data])
    three = await owners.open_and_sweep()
    assert await three.read(target_id, 0, 6) == b"intoit"


async def test_a_sweep_of_all_ends_where_very_many_are_damaged(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_sweep, "left_out_max", 2)
    one = await owners.open_and_sweep()
    for target_id in range(10, 15):
        await merged(one, target_id, target_id + 10)
        damage(owners, target_id)
    two = await owners.open(trusts_journals=False)
    with pytest.raises(SegmentDamaged, match="segment 10"):
        await two.sweeper.sweep()
    assert two.unswept_segments == 3


async def test_a_damaged_tombstone_ends_no_sweep_of_all(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await one.write(7, 0, [b"gone"])
    await crash_at(rolling_storage.DELETE_TOMBSTONE_STORED, one.delete(7))
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(8, 0, [b"lost"]))
    damage(owners, 7)
    two = await owners.open(trusts_journals=False)
    assert await two.sweeper.sweep() == (1, 0)
    assert two.unswept_segments == 1
    await collect_all(two)
    assert [LAYOUT.parse_chunk(name).segment_id for name in owners.names("d")] == [7]
    damage(owners, 7)
    await owners.open_and_sweep()
    assert not owners.names("d")


@pytest.mark.parametrize("is_restored", [False, True])
async def test_a_damaged_segment_that_a_sweep_of_all_left_out_is_looked_at_by_later_owners(
    owners: Owners, is_restored: bool
) -> None:
    """No journal names it: it was damaged itself, or there was none."""
    one = await owners.open_and_sweep()
    await one.write(7, 0, [b"kept"])
    await collect_all(one)
    await crash_at(rolling_storage.WRITE_CHUNK_STORED, one.write(7, 4, [b"lost"]))
    for journal in owners.names("j"):
        owners.chunks.objects[journal] = b"PVCJ and something else" * 3
    if is_restored:
        await owners.chunks.delete_all(owners.names("j"))
    damage(owners, 7)
    two = await owners.open(trusts_journals=not is_restored)
    await two.sweeper.sweep()
    await collect_all(two)
    assert len(owners.names("d")) == 2
    damage(owners, 7)
    three = await owners.open_and_sweep()
    assert len(owners.names("d")) == 1
    assert await three.read(7, 0, 4) == b"kept"


async def test_a_damaged_manifest_that_a_sweep_by_journals_finds_is_reported(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    damage(owners, 7)
    two = await owners.open()
    reported: list[tuple[int, int, int]] = []
    two.watch_damage(Lengths(s7=6), lambda *damaged: reported.append(damaged[:3]))
    assert await two.sweeper.sweep() == (0, 0)
    assert set(reported) == {(7, 5, 1)}
    assert two.unswept_segments == 2, "the owner, and the segment that its chunks were written for"
    await collect_all(two)
    damage(owners, 7)
    assert await two.read(7, 0, 6) == b"intoit"


async def test_damage_to_a_segment_that_the_container_has_no_more_is_not_reported(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await one.write(7, 0, [b"data"])
    damage(owners, 7)
    two = await owners.open()
    reported: list[int] = []
    two.watch_damage(NothingNeeded(), lambda *damaged: reported.append(damaged[0]))
    await two.sweeper.sweep()
    assert not reported
    assert two.unswept_segments == 1


async def test_sweeps_that_failed_are_counted(owners: Owners) -> None:
    one = await owners.open_and_sweep()
    await merged(one, 7, 8)
    two = await owners.open()
    two.watch_damage(LengthsDuringAMerge(8, 2), lambda *_: None)
    await two.sweeper._run()  # private: the service's task
    assert two.sweep_failures == orphan_sweep.attempts_max
    assert two.unswept_segments == 1
