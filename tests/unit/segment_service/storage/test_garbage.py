"""Names that wait for their deletion are as many as there are objects to delete, and all of them are deleted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from pravega_common.errors import PravegaError, Unavailable
from pravega_common.runtime.clock import SystemClock
from segment_service.maintenance.read_only import ContainerReader
from segment_service.storage import garbage, manifest_store
from segment_service.storage.chunk_names import ChunkId, ManifestId, ManifestKind, ManifestName
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.sorted_map_contract import STAMP, nothing
from tests.support.tier2_garbage import collect_all

FIRST, SECOND = 1, 2


class Chunks(InMemoryChunkStorage):
    """Fails deletions while it is told to."""

    fails_deletions = False
    refused: frozenset[str] = frozenset()
    """Names that it does not delete now."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[list[str]] = []
        """The names of each call."""

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        self.deletions.append(list(names))
        refused = [name for name in names if self.fails_deletions or name in self.refused]
        allowed = [name for name in names if name not in refused]
        if allowed:
            await super().delete_all(allowed)
        return {name: Unavailable(f"{name} cannot be deleted now") for name in refused}


async def read_in_turn(storage: RollingStorage, rounds: int) -> None:
    """Each read loads its segment again: there is room for the view of one."""
    for _ in range(rounds):
        for segment_id in (FIRST, SECOND):
            assert bytes(await storage.read(segment_id, 0, 4)) == b"0123"


async def test_a_name_that_loads_find_again_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_store, "views_max", 1)
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    for segment_id in (FIRST, SECOND):
        for offset in range(4):
            await storage.write(segment_id, offset, [b"%d" % offset])
    await read_in_turn(storage, 1)
    waiting = storage.garbage.waiting_names
    await read_in_turn(storage, 10)
    assert storage.garbage.waiting_names == waiting
    chunks.fails_deletions = True
    with pytest.raises(Unavailable):
        await storage.garbage.collect()
    await read_in_turn(storage, 1)
    assert storage.garbage.waiting_names == waiting
    chunks.fails_deletions = False
    await collect_all(storage)
    manifests = [info.name async for info in chunks.list(storage.layout.manifests)]
    assert len(manifests) == 4, "a base and a delta of each"


async def test_a_name_is_taken_again_once_it_was_deleted() -> None:
    """A put of it that had no answer may be done behind its deletion."""
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    name = storage.layout.chunk(ChunkId(FIRST, 1, 1))
    for _ in range(2):
        await chunks.put(name, [b"late"])
        storage.garbage.discard_found([name])
        storage.garbage.discard_found([name])
        assert storage.garbage.waiting_names == 1
        await collect_all(storage)
        assert not [info async for info in chunks.list(name)]


async def opened(chunks: Chunks, epoch: int) -> RollingStorage:
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(epoch, nothing, lambda: STAMP)
    return storage


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("by_sweep", [True, False])
async def test_more_names_of_one_change_than_may_wait_are_deleted(
    monkeypatch: pytest.MonkeyPatch, deleted: bool, by_sweep: bool
) -> None:
    chunks = Chunks()
    storage = await opened(chunks, 1)
    await storage.sweeper.sweep()  # from here on journals suffice
    for offset in range(40):
        await storage.write(FIRST, offset, [b"x"])
    await collect_all(storage)
    monkeypatch.setattr(garbage, "waiting_names_max", 20)
    await (storage.delete(FIRST) if deleted else storage.truncate(FIRST, 40))
    if by_sweep:  # the first owner ends before it deletes
        storage = await opened(chunks, 2)
        await storage.garbage.collect()  # what its start found
        await storage.sweeper.sweep()
    assert storage.garbage.waiting_names > 40
    await collect_all(storage)
    assert storage.garbage.dropped_names == 0
    assert not [info async for info in chunks.list(storage.layout.chunks)]
    manifests = [info async for info in chunks.list(storage.layout.manifests)]
    assert len(manifests) <= (0 if deleted else 2), "a base and a delta"


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("by_sweep", [True, False])
async def test_a_tombstone_goes_after_the_manifests_that_it_replaced(merged: bool, by_sweep: bool) -> None:
    """Without it they would count again, and the segment would be there as long as Tier 2 is."""
    chunks = Chunks()
    storage = await opened(chunks, 1)
    await storage.sweeper.sweep()  # from here on journals suffice
    for offset in range(2):
        await storage.write(FIRST, offset, [b"x"])
    replaced = frozenset([info.name async for info in chunks.list(storage.layout.manifests)])
    await storage.write(SECOND, 0, [b"x"])
    await (storage.concat(SECOND, 1, FIRST) if merged else storage.delete(FIRST))
    storage = await opened(chunks, 2)  # the first owner ended before it deleted
    await (storage.sweeper.sweep() if by_sweep else storage.delete(FIRST))
    chunks.refused = replaced
    for _ in range(3):
        with pytest.raises(Unavailable):
            await storage.garbage.collect()
    storage = await opened(chunks, 3)  # and so did the second one
    assert await storage.state(FIRST) is None
    chunks.refused = frozenset()
    await storage.sweeper.sweep()
    await collect_all(storage)
    assert not [info async for info in chunks.list(storage.layout.manifests_of(FIRST))]
    assert len([info async for info in chunks.list(storage.layout.chunks_of(FIRST))]) == (2 if merged else 0)


async def test_a_group_is_refused_while_as_many_wait_as_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "waiting_names_max", 3)
    storage = await opened(Chunks(), 1)
    names = [storage.layout.chunk(ChunkId(FIRST, 1, counter)) for counter in range(4)]
    storage.garbage.discard(names)
    storage.garbage.discard(names)
    assert (storage.garbage.waiting_names, storage.garbage.dropped_names) == (4, 4)


def names_of(storage: RollingStorage, segment_id: int) -> tuple[list[str], list[str]]:
    """Two chunks and two manifests."""
    return (
        [storage.layout.chunk(ChunkId(segment_id, 1, counter)) for counter in (1, 2)],
        [
            storage.layout.manifest(ManifestName(segment_id, ManifestId(1, number), kind))
            for number, kind in ((3, ManifestKind.BASE), (4, ManifestKind.DELTA))
        ],
    )


async def filled(storage: RollingStorage, chunks: Chunks, segment_ids: Sequence[int]) -> None:
    """Chunks and manifests of segments, each of them with a group of its own that waits."""
    for segment_id in segment_ids:
        names = list(itertools.chain(*names_of(storage, segment_id)))
        for name in names:
            await chunks.put(name, [b"x"])
        storage.garbage.discard(names)


async def test_what_may_go_at_the_same_time_is_one_deletion() -> None:
    chunks = Chunks()
    storage = await opened(chunks, 1)
    segment_ids = range(10, 40)
    await filled(storage, chunks, segment_ids)
    assert await storage.garbage.collect() == 4 * len(segment_ids)
    found = [names_of(storage, segment_id) for segment_id in segment_ids]
    expected = [
        [name for first, _ in found for name in first],
        [manifests[0] for _, manifests in found],
        [manifests[1] for _, manifests in found],
    ]
    assert chunks.deletions == expected
    assert not [info async for info in chunks.list(storage.layout.chunks)]


async def test_a_deletion_has_no_more_names_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "names_per_deletion_max", 7)
    chunks = Chunks()
    storage = await opened(chunks, 1)
    await filled(storage, chunks, range(10, 40))
    assert await storage.garbage.collect() == 120
    assert max(map(len, chunks.deletions)) == 7
    assert len(chunks.deletions) < 30


async def test_names_that_wait_for_one_of_a_later_round_do_not_keep_it_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "names_per_barrier_max", 2)
    chunks = Chunks()
    storage = await opened(chunks, 1)
    manifests = [
        storage.layout.manifest(ManifestName(FIRST, ManifestId(1, number), kind))
        for number, kind in enumerate([ManifestKind.DELTA] + 3 * [ManifestKind.TOMBSTONE])
    ]
    journal = storage.layout.journal(1, 9)
    for name in (*manifests, journal):
        await chunks.put(name, [b"x"])
    for name in manifests[1:]:
        storage.garbage.discard([name])
    storage.garbage.discard_last([journal])
    storage.garbage.discard_found(manifests[:1])
    rounds = 0
    while storage.garbage.waiting_names and rounds < 10:
        await storage.garbage.collect()
        rounds += 1
    assert [name for names in chunks.deletions for name in names] == [*manifests, journal]


async def test_a_store_that_deletes_nothing_is_asked_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer may take as long as a call may."""
    monkeypatch.setattr(garbage, "names_per_deletion_max", 7)
    chunks = Chunks()
    storage = await opened(chunks, 1)
    await filled(storage, chunks, range(10, 40))
    chunks.fails_deletions = True
    for rounds in (1, 2):
        with pytest.raises(Unavailable):
            await storage.garbage.collect()
        assert (len(chunks.deletions), storage.garbage.waiting_names) == (rounds, 120)


async def test_a_name_that_cannot_be_deleted_keeps_what_leads_to_it_and_nothing_else() -> None:
    chunks = Chunks()
    storage = await opened(chunks, 1)
    await filled(storage, chunks, (10, 11, 12))
    marks = [info.name async for info in chunks.list(storage.layout.epochs)]
    (_, lost), manifests = names_of(storage, 11)
    chunks.refused = frozenset([lost])
    for _ in range(2):
        with pytest.raises(Unavailable, match=lost):
            await storage.garbage.collect()
        found = [info.name async for info in chunks.list(storage.layout.prefix)]
        assert [name for name in found if name not in marks] == [lost, *manifests]
        assert storage.garbage.waiting_names == 3
    chunks.refused = frozenset()
    assert await storage.garbage.collect() == 3


async def test_a_reader_beside_the_owner_remembers_nothing() -> None:
    chunks = Chunks()
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(1, nothing, lambda: STAMP)
    for offset in range(4):
        await storage.write(FIRST, offset, [b"%d" % offset])
    assert storage.garbage.waiting_names
    reader = ContainerReader(chunks, 0, SystemClock())
    assert (await reader.view(FIRST)).length == 4
    assert not reader._garbage.waiting_names  # private: what it would remember
