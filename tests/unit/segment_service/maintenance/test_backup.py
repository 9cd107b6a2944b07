"""A backup that was made while a container worked serves everything that was acknowledged before it began."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound, Unavailable
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.contracts.data_log import LogEntry
from segment_service.maintenance.backup_files import LOGS, TIER2
from segment_service.maintenance.container_backup import ContainerBackup
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.log_reading import LogChanged
from segment_service.maintenance.read_only import ContainerReader
from segment_service.maintenance.store_backup import StoreBackup
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.segment_sweep import MergeUnfinished
from segment_service.store import container_marker_prefix
from tests.support.backups import LAYOUT, Place, Worker, backed_up, flushed, idle, restored, truncated, write_names
from tests.support.containers import read_all
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.log_reading import InMemoryLogSource
from tests.support.tier2_garbage import collect_all

sweep_time_max_s = 30.0


async def assert_serves(
    container: SegmentContainer, worker: Worker, before: tuple[dict[str, bytes], dict[str, int], set[str]]
) -> None:
    """Everything that was acknowledged before the backup began is there, and nothing that was never written."""
    after = worker.snapshot()
    for name, acked in before[0].items():
        if name in before[2]:
            with pytest.raises(SegmentNotFound):
                await container.get_info(name)
            continue
        if name in after[2]:
            continue  # it may be gone
        info = await container.get_info(name)
        assert info.length >= len(acked), name
        assert before[1].get(name, 0) <= info.start_offset <= after[1].get(name, 0), name
        assert await read_all(container, name, info.start_offset) == after[0][name][info.start_offset : info.length]


def storage_of(container: SegmentContainer) -> RollingStorage:
    assert isinstance(container._storage, RollingStorage)
    return container._storage


async def swept(container: SegmentContainer) -> None:
    """As its service does it, again after a failure: a sweep of all segments fails where the storage writer has not
    made a merge again that Tier 2 has done, and whose source so lacks what the log says of it."""
    deadline_s = time.monotonic() + sweep_time_max_s
    while True:
        try:
            await storage_of(container).sweeper.sweep()
            break
        except MergeUnfinished:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.05)  # for the storage writer, which tells nobody of its progress
    mark = await storage_of(container).newest_mark()
    assert mark is not None and mark.has_journals


@pytest.mark.parametrize("seed", range(12))
async def test_a_backup_beside_a_working_container(place: Place, target: Place, tmp_path: Path, seed: int) -> None:
    container = await place.open()
    worker = Worker(place, container, seed)
    await worker.run(60)
    await swept(container)
    before = worker.snapshot()
    outcome = await backed_up(place, tmp_path / "b", lambda: worker.run(1))
    await container.stop()
    other = await restored(target, tmp_path / "b")
    mark = await storage_of(other).newest_mark()
    assert mark is not None and not mark.has_journals  # a copy has none: all segments are swept
    await swept(other)
    await assert_serves(other, worker, before)
    live = [name for name in before[0] if name not in worker.deleted]
    for name in live:
        await other.append(name, [b"more"])
    await flushed(target, other)
    assert not outcome.damaged
    assert not [one for one in other.metadata.segments if other.metadata.quarantine.reason(one)]
    await other.table.flush()
    report = await StoreDoctor(target.chunks, InMemoryLogSource(target.logs), target.clock).examine_container(
        0, deep=True
    )
    assert report.findings == []
    await other.stop()
    again = await target.open()
    for name in live:
        assert (await read_all(again, name, (await again.get_info(name)).start_offset)).endswith(b"more")
    await again.stop()


async def test_a_merge_between_the_reading_of_its_target_and_its_source(
    place: Place, target: Place, tmp_path: Path
) -> None:
    """The target is read before the merge, the source after it: the target is read again."""
    container = await place.open()
    worker = Worker(place, container, 0)
    for name in ("first", "second", "source"):
        await worker.create(name)
        await worker.append(name, name.encode() * 30_000)
    await flushed(place, container)
    await truncated(place, container)  # the bytes are in Tier 2 alone
    before = worker.snapshot()

    async def work() -> None:
        if (tmp_path / "b" / TIER2 / LAYOUT.manifests_of(1)).exists() and "source" in worker.acked:
            await container.merge("first", "source")
            worker.acked["first"] += worker.acked.pop("source")
            worker.deleted.add("source")
            await flushed(place, container)

    await backed_up(place, tmp_path / "b", work)
    assert "source" in worker.deleted
    await container.stop()
    other = await restored(target, tmp_path / "b")
    await flushed(target, other)
    assert await read_all(other, "first") == b"first" * 30_000 + b"source" * 30_000
    assert await read_all(other, "second") == before[0]["second"]
    with pytest.raises(SegmentNotFound):
        await other.get_info("source")
    await other.stop()


async def test_checkpoints_behind_the_copy_of_tier2_do_not_count(place: Place, target: Place, tmp_path: Path) -> None:
    """They say that Tier 2 has bytes which came to it after it was copied."""
    container = await place.open()
    worker = Worker(place, container, 0)
    await worker.create("one")
    await worker.append("one", b"before" * 1_000)
    await flushed(place, container)
    is_done = False

    async def work() -> None:
        nonlocal is_done
        if (tmp_path / "b" / TIER2 / LAYOUT.manifests_of(1)).exists() and not is_done:
            is_done = True
            await worker.append("one", b"after" * 1_000)
            await flushed(place, container)
            place.logs.faults.truncate_error = Unavailable("not yet")
            await container.durable_log.checkpoint()
            await worker.append("one", b"end")

    await backed_up(place, tmp_path / "b", work)
    assert is_done
    await container.stop()
    other = await restored(target, tmp_path / "b")
    assert await read_all(other, "one") == b"before" * 1_000 + b"after" * 1_000 + b"end"
    await flushed(target, other)
    assert not other.metadata.quarantine.reason(1)
    await other.stop()


class ChangedChunks(InMemoryChunkStorage):
    """Lists names page by page, so without those that are deleted since, as adapters do."""

    changes: tuple[str, Callable[[], Awaitable[None]]] | None = None
    """A prefix, and what is done behind the first object that is listed below it."""

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        async for info in super().list(prefix):
            if info.name not in self.objects:
                continue
            yield info
            if self.changes is not None and prefix == self.changes[0]:
                (_, change), self.changes = self.changes, None
                await change()


async def of_large_writes(place: Place, names: list[str]) -> SegmentContainer:
    """The second owner of segments whose manifests are objects, and whose bytes are in Tier 2 alone."""
    container = await place.open()
    await write_names(place, container, names, 30_000)
    await truncated(place, container)
    await container.stop()
    return await place.open()


def sharing_place() -> tuple[Place, ChangedChunks]:
    place, stored = Place(), ChangedChunks()
    place.stored, place.chunks = stored, FaultyChunkStorage(stored, random.Random(7), place.clock)
    place.shares_objects, place.background = True, False
    return place, stored


async def test_a_later_pass_copies_what_its_listing_has_as_it_was_before(tmp_path: Path) -> None:
    """The listing has the base, an entry, of a segment whose delta was an object, and became an entry."""
    place, stored = sharing_place()
    container = await of_large_writes(place, ["first", "second", "third"])
    await container.append("third", [b"base"])
    await flushed(place, container)
    copies = InMemoryChunkStorage()
    source = InMemoryLogSource(place.logs)
    (tmp_path / LOGS).mkdir()
    backup = ContainerBackup(0, place.chunks, source, tmp_path, copies, place.clock)

    async def step(text: str) -> None:
        """Do nothing."""

    await backup.copy_state(step)
    await container.append("third", [b"delta" * 30_000])
    await flushed(place, container)
    needed = (await container.get_info("third")).length

    async def change() -> None:
        await container.append("third", [b"more"])
        await flushed(place, container)
        await collect_all(storage_of(container))

    stored.changes = LAYOUT.manifests, change
    await backup.copy_state(step)
    assert stored.changes is None
    assert (await ContainerReader(copies, 0, place.clock).view(3)).length >= needed
    backup.log.close()
    await container.stop()


async def test_a_manifest_that_becomes_an_entry_while_manifests_are_listed(target: Place, tmp_path: Path) -> None:
    """The listing has no entry of the segment, which came later, and no object, which is gone by then."""
    names = ["first", "second", "third"]
    place, stored = sharing_place()
    await place.mark()
    container = await of_large_writes(place, names)

    async def change() -> None:
        await container.append("third", [b"more"])
        await flushed(place, container)
        await collect_all(storage_of(container))

    stored.changes = LAYOUT.manifests, change
    outcome = await backed_up(place, tmp_path / "b", idle)
    assert stored.changes is None and not outcome.damaged
    await container.stop()
    other = await restored(target, tmp_path / "b")
    for name in names:
        assert (await read_all(other, name)).removesuffix(b"more") == name.encode() * 30_000
    await other.stop()


async def test_a_backup_of_a_log_that_lost_a_plog_says_so(tmp_path: Path) -> None:
    place = Place()
    await place.stored.put(f"{container_marker_prefix}1/x", [b"containers\n"])
    container = await place.open(0)
    await container.stop()
    source = InMemoryLogSource(place.logs)

    def missing() -> None:
        raise LogChanged("plog 7 is on no server", is_loss=True)

    source.before_entry = missing
    with pytest.raises(DataCorruption, match="plog 7 is on no server"):
        await StoreBackup(place.chunks, source, tmp_path / "b", place.clock, sync=False).run("c", 1)


class BetweenLogs(InMemoryLogSource):
    """Does something to the containers between the readings of their logs."""

    def __init__(self, place: Place, between: Callable[[], Awaitable[None]]) -> None:
        super().__init__(place.logs)
        self._between = between

    async def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        async for entry in super().read(container_id):
            yield entry
        if container_id == 0:
            await self._between()


@pytest.mark.parametrize("is_endless", [False, True])
async def test_an_effect_never_comes_without_its_cause(tmp_path: Path, is_endless: bool) -> None:
    """Container 1 gets a name for each segment that container 0 made before."""
    place, target = Place(), Place()
    await place.stored.put(f"{container_marker_prefix}2/x", [b"containers\n"])
    maker, namer = await place.open(0), await place.open(1)
    await namer.create_segment("_system/names")
    event_segment = "scope/stream/0.#epoch.0"
    await namer.create_segment(event_segment)
    made = 0

    async def between() -> None:
        nonlocal made
        await namer.append(event_segment, [b"event"])
        if made < 12 or is_endless:
            made += 1
            await maker.create_segment(f"segment-{made}")
            await namer.append("_system/names", [b"%4d" % made])

    backup = StoreBackup(place.chunks, BetweenLogs(place, between), tmp_path / "b", place.clock, sync=False)
    if is_endless:
        with pytest.raises(Unavailable, match="nothing but events"):
            await backup.run("c", 2)
    else:
        await backup.run("c", 2)
        restore = target.restore_from(tmp_path / "b")
        await restore.carry_out(restore.verify())
        other_maker, other_namer = await target.open(0), await target.open(1)
        names = await read_all(other_namer, "_system/names")
        assert len(names) == 4 * 12
        for number in range(1, 13):
            await other_maker.get_info(f"segment-{number}")
        assert (await read_all(other_namer, event_segment)).startswith(b"event" * 12)
        await other_maker.stop()
        await other_namer.stop()
    await maker.stop()
    await namer.stop()
