"""A backup that was made while a container worked serves everything that was acknowledged before it began."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, PravegaError, SegmentNotFound, Unavailable
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.data_log import DurableDataLog, LogEntry
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.maintenance import backup_restore, container_backup, store_backup
from segment_service.maintenance.backup_files import (
    INVENTORY,
    LOGS,
    TIER2,
    read_header,
    read_inventory,
    read_log,
    verify,
)
from segment_service.maintenance.backup_restore import BackupRestore
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.store_backup import BackupOutcome, StoreBackup
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.storage.chunk_names import Layout
from segment_service.store import container_marker_prefix
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog
from tests.support.log_reading import InMemoryLogSource

LAYOUT = Layout(0)
WRITER = AttributeId(bytes(15) + b"w")
BACKUP_STEPS = [
    store_backup.CHUNKS_COPIED,
    container_backup.LOG_BEGUN,
    container_backup.MARK_COPIED,
    container_backup.TABLE_COPIED,
    container_backup.SEGMENT_COPIED,
    container_backup.MANIFESTS_COPIED,
    store_backup.LOGS_COPIED,
    store_backup.INVENTORY_WRITTEN,
]
RESTORE_STEPS = [
    backup_restore.BLOCKED,
    backup_restore.OBJECT_PUT,
    backup_restore.LOG_BEGUN,
    backup_restore.FRAME_WRITTEN,
    backup_restore.LOG_WRITTEN,
    backup_restore.RELEASED,
]


class Place(ContainerKit):
    """Tier 1, Tier 2 and a CPO, with checkpoints as often as may be, so that the log is truncated all the time."""

    def __init__(self) -> None:
        super().__init__(checkpoints=CheckpointPolicy(150, 2_000_000, 0), plog_bytes=100_000)
        self.write_to_tier2()
        self.background = True
        self.config = replace(self.config, metadata_table=MetadataTableConfig(flush_age_s=0.05))
        self.cpo = InMemoryCPO(self.clock)

    async def mark(self) -> None:
        await self.stored.put(f"{container_marker_prefix}1/x", [b"containers\n"])

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        log = InMemoryDataLog(container_id, self.logs)
        await log.initialize(epoch_min)
        return log

    def restore_from(self, folder: Path) -> BackupRestore:
        return BackupRestore(folder, self.cpo, self.chunks, InMemoryLogSource(self.logs), self, self.clock)


class BusySource(InMemoryLogSource):
    """Lets a container work whenever its log is read."""

    def __init__(self, place: Place, work: Callable[[], Awaitable[None]]) -> None:
        super().__init__(place.logs)
        self._work = work

    async def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        async for entry in super().read(container_id):
            yield entry
        await self._work()


class BusyBackup(StoreBackup):
    """Lets a container work between any two steps."""

    work: Callable[[], Awaitable[None]]

    async def _step(self, text: str) -> None:
        await self.work()
        await super()._step(text)


async def flushed(kit: ContainerKit, container: SegmentContainer) -> None:
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
    await eventually(lambda: not container.durable_log.memory_length, "everything acknowledged")


async def truncated(place: Place, container: SegmentContainer) -> None:
    """Let the log begin behind everything that was done so far."""
    await container.durable_log.checkpoint()
    last = place.logs.entries(0)[-1].address
    await flushed(place, container)
    await container.durable_log.barrier()
    await eventually(lambda: place.logs.container(0).truncated_at >= last, "the log truncated")


class Worker:
    """Appends, seals, truncates, merges and deletes, and remembers what was acknowledged and when."""

    def __init__(self, place: Place, container: SegmentContainer, seed: int) -> None:
        self.place, self.container, self.random = place, container, random.Random(seed)
        self.acked: dict[str, list[bytes]] = {}
        self.deleted: set[str] = set()
        self.truncated: dict[str, int] = {}
        self.number = 0

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self.step()

    async def step(self) -> None:
        self.number += 1
        live = [name for name in self.acked if name not in self.deleted]
        kind = self.random.random()
        if not live or kind < 0.1:
            await self.create(f"s{self.number}")
        elif kind < 0.35:
            await self.merge(self.random.choice(live))
        elif kind < 0.40 and len(live) > 4:
            name = self.random.choice(live)
            self.deleted.add(name)
            await self.container.delete(name)
        elif kind < 0.45:
            name = self.random.choice(live)
            offset = self.truncated[name] = self.random.randint(self.truncated.get(name, 0), self.length(name))
            await self.container.truncate(name, offset)
        elif kind < 0.6:
            await asyncio.sleep(0.02)  # the storage writer has a clock of its own
        elif kind < 0.65:
            await self.container.table.flush()
            await self.container.evictor.evict_idle()
        else:
            await self.append(self.random.choice(live), b"%d." % self.number * self.random.choice([1, 300, 20_000]))

    def length(self, name: str) -> int:
        return sum(map(len, self.acked[name]))

    async def create(self, name: str) -> None:
        await self.container.create_segment(name)
        self.acked[name] = []

    async def append(self, name: str, data: bytes) -> None:
        update = AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, self.number)
        await self.container.append(name, [data], [update])
        self.acked[name].append(data)

    async def merge(self, target: str) -> None:
        source, data = f"{target}#t{self.number}", b"m%d." % self.number * self.random.choice([1, 300, 20_000])
        await self.container.create_segment(source)
        await self.container.append(source, [data])
        if self.random.random() < 0.5:
            await asyncio.sleep(0.03)  # it comes to Tier 2 under its own id
        await self.container.merge(target, source)
        self.acked[target].append(data)

    def snapshot(self) -> tuple[dict[str, bytes], dict[str, int], set[str]]:
        content = {name: b"".join(parts) for name, parts in self.acked.items()}
        return content, dict(self.truncated), set(self.deleted)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    await place.mark()
    yield place


@pytest.fixture
async def target() -> Place:
    return Place()


async def backed_up(place: Place, folder: Path, work: Callable[[], Awaitable[None]]) -> BackupOutcome:
    backup = BusyBackup(place.chunks, BusySource(place, work), folder, place.clock, follow_every_s=0.0, sync=False)
    backup.work = work
    return await backup.run("c", 1)


async def idle() -> None:
    pass


async def restored(target: Place, folder: Path) -> SegmentContainer:
    restore = target.restore_from(folder)
    await restore.carry_out(restore.verify())
    return await target.open()


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


@pytest.mark.parametrize("seed", range(12))
async def test_a_backup_beside_a_working_container(place: Place, target: Place, tmp_path: Path, seed: int) -> None:
    container = await place.open()
    worker = Worker(place, container, seed)
    await worker.run(60)
    before = worker.snapshot()
    outcome = await backed_up(place, tmp_path / "b", lambda: worker.run(1))
    await container.stop()
    other = await restored(target, tmp_path / "b")
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


# --- damaged and unfinished backups


@pytest.fixture
async def folder(place: Place, tmp_path: Path) -> Path:
    container = await place.open()
    worker = Worker(place, container, 3)
    await worker.run(40)
    await backed_up(place, tmp_path / "b", idle)
    await container.stop()
    return tmp_path / "b"


async def test_a_damaged_file_is_refused(folder: Path) -> None:
    header = verify(folder)
    assert header.backup_id and header.containers == 1 and len(header.parts) == 1
    for line in list(read_inventory(folder)):
        path = folder / line.name
        sound = path.read_bytes()
        for damaged in (sound[:-1], sound + b"x", bytes([sound[0] ^ 1]) + sound[1:]):
            path.write_bytes(damaged)
            with pytest.raises(DataCorruption, match="inventory says"):
                verify(folder)
        path.unlink()
        with pytest.raises(DataCorruption, match="missing from the backup"):
            verify(folder)
        path.write_bytes(sound)
    verify(folder)


async def test_a_damaged_inventory_is_refused(folder: Path) -> None:
    path = folder / INVENTORY
    sound = path.read_bytes()
    for position in range(0, len(sound), 7):
        for damaged in (sound[:position], sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(DataCorruption):
                verify(folder)
    path.write_bytes(sound.replace(b"backup 1", b"backup 2", 1))
    with pytest.raises(DataCorruption, match="a newer one made it"):
        read_header(folder)


async def test_a_log_that_ends_in_a_frame_is_refused(folder: Path) -> None:
    path = folder / LOGS / "c00000"
    sound = path.read_bytes()
    frames = len(list(read_log(path)))
    assert frames > 3
    path.write_bytes(sound[:-1])
    with pytest.raises(DataCorruption, match="cut short"):
        list(read_log(path))
    path.write_bytes(sound[:30] + bytes([sound[30] ^ 1]) + sound[31:])
    with pytest.raises(DataCorruption, match="damaged"):
        list(read_log(path))


async def test_an_interrupted_backup_is_none(place: Place, target: Place, tmp_path: Path) -> None:
    container = await place.open()
    worker = Worker(place, container, 3)
    await worker.run(20)
    steps = 0

    async def work() -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await backed_up(place, tmp_path / "b", work)
    with pytest.raises(DataCorruption, match="no inventory"):
        target.restore_from(tmp_path / "b").verify()
    with pytest.raises(ConfigurationError, match="remove it and begin again"):
        await backed_up(place, tmp_path / "b", idle)
    await backed_up(place, tmp_path / "c", idle)
    with pytest.raises(ConfigurationError, match="is a backup already"):
        await backed_up(place, tmp_path / "c", idle)
    await container.stop()


# --- the place, and interruptions of a restore


async def test_a_restore_needs_empty_places(folder: Path, place: Place, target: Place) -> None:
    restore = place.restore_from(folder)
    with pytest.raises(ConfigurationError, match="Tier 2 is not empty"):
        await restore.carry_out(restore.verify())
    container = await target.open()
    await container.stop()
    for name in list(target.stored.objects):
        await target.stored.delete(name)
    restore = target.restore_from(folder)
    with pytest.raises(ConfigurationError, match="Tier 1 is not empty"):
        await restore.carry_out(restore.verify())
    assert not target.stored.objects
    target.logs.restore(0)
    await target.cpo.set_once(CONTAINER_COUNT_KEY, "1")
    with pytest.raises(ConfigurationError, match="the CPO is not empty"):
        await restore.carry_out(restore.verify())
    assert not target.stored.objects


@pytest.mark.parametrize("step", RESTORE_STEPS)
async def test_an_interrupted_restore_is_refused_at_a_start_and_made_again(
    folder: Path, target: Place, step: str
) -> None:
    restore = target.restore_from(folder)
    header = restore.verify()
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(failpoints.FailpointError):
        await restore.carry_out(header)
    failpoints.disarm_all()
    if step != backup_restore.RELEASED:
        with pytest.raises(DataCorruption):
            await target.make().start()
        await target.restore_from(folder).carry_out(header)
    container = await target.open()
    assert container.metadata.identity.hex() == header.parts[0].identity
    assert container.epoch > header.parts[0].epoch
    with pytest.raises(PravegaError):
        await target.restore_from(folder).carry_out(header)
    await container.stop()


# --- several containers are as of one moment


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


# --- crashes of a backup


@pytest.mark.parametrize("step", BACKUP_STEPS)
async def test_a_backup_that_crashed_anywhere_is_refused(place: Place, tmp_path: Path, step: str) -> None:
    container = await place.open()
    await Worker(place, container, 3).run(20)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(failpoints.FailpointError):
        await backed_up(place, tmp_path / "b", idle)
    failpoints.disarm_all()
    if step == store_backup.INVENTORY_WRITTEN:
        verify(tmp_path / "b")
    else:
        with pytest.raises(DataCorruption, match="no inventory"):
            verify(tmp_path / "b")
    await container.stop()
