"""Backs up and restores a container of the unit tests while it works."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.data_log import DurableDataLog, LogEntry
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.maintenance.backup_restore import BackupRestore
from segment_service.maintenance.store_backup import BackupOutcome, StoreBackup
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.storage.chunk_names import Layout
from segment_service.store import container_marker_prefix
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog
from tests.support.log_reading import InMemoryLogSource

LAYOUT = Layout(0)
WRITER = AttributeId(bytes(15) + b"w")


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


async def write_names(kit: ContainerKit, container: SegmentContainer, names: Sequence[str], times: int = 1) -> None:
    """Bring a segment of each name to Tier 2 and to the metadata table, which has its name as its bytes."""
    for name in names:
        await container.create_segment(name)
        await container.append(name, [name.encode() * times])
    await flushed(kit, container)
    await container.table.flush()


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
