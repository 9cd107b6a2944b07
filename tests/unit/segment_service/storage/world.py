"""Owners of one container that follow each other over one chunk storage, all applying the same committed log."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from pravega_common.errors import BadOffset, Fenced, PravegaError, Unavailable, UnknownOutcome
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import LogState, StorageState
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.foreign_owners import origins
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.orphan_sweep import kept_epochs_max
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.tier2_garbage import collect_all


class YieldingClock:
    """Sleeping is letting others run, for a number of turns that the seed draws."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return int(self._now_s * 1000)

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        self._now_s += delay_s
        for _ in range(self._rng.randrange(1, 6)):
            await asyncio.sleep(0)


@dataclass
class Operation:
    kind: str
    segment_id: int
    offset: int = 0
    data: bytes = b""
    source_id: int = 0
    length: int = 0


@dataclass
class ModelSegment:
    data: bytes = b""
    start: int = 0
    sealed: bool = False


@dataclass
class Log:
    """The committed state, and the owner of the container."""

    epoch: int = 0
    operations: list[Operation] = field(default_factory=list)
    segments: dict[int, ModelSegment] = field(default_factory=dict)
    next_id: int = 1
    durable: int = 0

    def take_over(self) -> int:
        self.epoch += 1
        return self.epoch

    def state(self) -> LogState:
        """Every look finds more, so that each change needs a mark of its own."""
        self.durable += 1
        return LogState(bytes(range(16)), self.durable, self.next_id + 1)

    async def barrier(self, epoch: int) -> None:
        await asyncio.sleep(0)
        if epoch < self.epoch:
            raise Fenced(f"epoch {epoch} was fenced by {self.epoch}")

    def commit(self, operation: Operation) -> None:
        self.operations.append(operation)
        segment = self.segments.setdefault(operation.segment_id, ModelSegment())
        if operation.kind == "write":
            segment.data += operation.data
        elif operation.kind == "seal":
            segment.sealed = True
        elif operation.kind == "truncate":
            segment.start = operation.offset
        elif operation.kind == "merge":
            segment.data += self.segments.pop(operation.source_id).data
        else:
            del self.segments[operation.segment_id]

    def commit_random(self, rng: random.Random, count: int) -> None:
        for _ in range(count):
            self.commit(self._random(rng))

    def _random(self, rng: random.Random) -> Operation:
        open_ids = [one for one, segment in self.segments.items() if not segment.sealed]
        drawn = rng.random()
        if not open_ids or drawn < 0.15:
            self.next_id += 1
            return Operation("write", self.next_id, 0, rng.randbytes(rng.randrange(1, 20)))
        chosen = rng.choice(open_ids)
        segment = self.segments[chosen]
        if drawn < 0.75:
            return Operation("write", chosen, len(segment.data), rng.randbytes(rng.randrange(1, 20)))
        if drawn < 0.83:
            return Operation("truncate", chosen, rng.randrange(segment.start, len(segment.data) + 1))
        sources = [one for one, other in self.segments.items() if one != chosen and other.start == 0]
        if drawn < 0.92 and sources:
            source = rng.choice(sources)
            length = len(self.segments[source].data)
            return Operation("merge", chosen, len(segment.data), source_id=source, length=length)
        return Operation("seal" if drawn < 0.95 else "delete", chosen)


async def apply(storage: RollingStorage, operation: Operation) -> None:
    """Bring one operation to Tier 2, whatever of it is there already."""
    state = await storage.state(operation.segment_id)
    length = state.length if state is not None else 0
    if operation.kind == "write":
        if length < operation.offset + len(operation.data) and not (state is not None and state.is_sealed):
            await storage.write(operation.segment_id, length, [operation.data[length - operation.offset :]])
    elif operation.kind == "seal":
        await storage.seal(operation.segment_id)
    elif operation.kind == "truncate":
        await storage.truncate(operation.segment_id, operation.offset)
    elif operation.kind == "merge":
        await storage.concat(operation.segment_id, operation.offset, operation.source_id)
    else:
        await storage.delete(operation.segment_id)


async def replay(storage: RollingStorage, log: Log, rng: random.Random, first: int = 0) -> None:
    """All operations from ``first`` on, with retries, as a storage writer would, and maintenance in between."""
    deleted = deleted_segments(log)
    merged = await merges_done(storage, log, deleted)
    for operation in list(log.operations[first:]):
        await retried(lambda operation=operation: apply_once(storage, operation, deleted, merged))
        drawn = rng.random()
        if drawn < 0.2:
            await retried(storage.garbage.collect)
        elif drawn < 0.3:
            await storage.compactor.compact_waiting()
        elif drawn < 0.4:
            await retried(lambda: storage.mark(log.durable))


def deleted_segments(log: Log) -> set[int]:
    """Those that are deleted somewhere in the log, and those merged into them."""
    deleted = {one.segment_id for one in log.operations if one.kind == "delete"}
    for one in reversed(log.operations):
        if one.kind == "merge" and one.segment_id in deleted:
            deleted.add(one.source_id)
    return deleted


async def apply_once(storage: RollingStorage, operation: Operation, deleted: set[int], merged: set[int]) -> None:
    """As ``apply``, with what a storage writer knows of the log ahead: a segment that is deleted later is not written,
    and one whose merge is in Tier 2 is left alone."""
    if operation.segment_id in deleted:
        if operation.kind == "merge":
            await storage.delete(operation.source_id)
        elif operation.kind == "delete":
            await storage.delete(operation.segment_id)
    elif operation.segment_id not in merged:
        await apply(storage, operation)


async def merges_done(storage: RollingStorage, log: Log, deleted: set[int]) -> set[int]:
    """Sources whose bytes Tier 2 has as part of their targets."""
    gone = set(deleted)
    for operation in reversed(log.operations):
        if operation.kind == "merge":
            state = await retried(lambda operation=operation: storage.state(operation.segment_id))
            in_target = state is not None and state.length >= operation.offset + operation.length
            if operation.segment_id in gone or in_target:
                gone.add(operation.source_id)
    return gone - deleted


async def retried(call, attempts: int = 500):  # type: ignore[no-untyped-def]
    """The result of the call, which fails as a faulty store makes it fail, or because an earlier owner was faster."""
    error: PravegaError | None = None
    for _ in range(attempts):
        try:
            return await call()
        except (Unavailable, UnknownOutcome, BadOffset) as caught:
            error = caught
            await asyncio.sleep(0)
    raise AssertionError(f"still failing after {attempts} attempts") from error


async def open_storage(chunks: ChunkStorage, log: Log, rng: random.Random, share: float = 0.7) -> RollingStorage:
    """Take the container over; an opening that failed takes the next epoch. ``share``: of the owners that share small
    objects."""

    async def once() -> RollingStorage:
        epoch = log.take_over()
        clock, shares = YieldingClock(rng), rng.random() < share
        storage = RollingStorage(chunks, 1, clock, background=False, shares_objects=shares)
        SortedRunMaps(1, chunks, storage, clock)
        await storage.start(epoch, lambda: log.barrier(epoch), log.state)
        return storage

    opened: RollingStorage = await retried(once)
    return opened


async def verify(storage: RollingStorage, log: Log) -> None:
    """Tier 2 is what the log says."""
    for segment_id, segment in log.segments.items():
        state = await retried(lambda segment_id=segment_id: storage.state(segment_id))
        if state is None:
            assert not segment.data, f"segment {segment_id} is not in Tier 2"
            continue
        assert state == StorageState(segment_id, segment.start, len(segment.data), segment.sealed)
        length = len(segment.data) - segment.start
        found = await retried(
            lambda segment_id=segment_id, start=segment.start, length=length: storage.read(segment_id, start, length)
        )
        assert found == segment.data[segment.start :], f"segment {segment_id}"


async def verify_nothing_left(
    chunks: InMemoryChunkStorage, log: Log, rng: random.Random, *, puts_were_late: bool = False
) -> None:
    """After sweeps of some owners every object belongs to a living segment, or is the last owner's own work. Each
    claims what it takes away, and leaves that claim to the next one. Late puts may have brought manifests of segments
    back that are gone: they stay, and are never read."""
    for _ in range(3):
        storage = await open_storage(chunks, log, rng)
        await storage.sweeper.sweep()
        await collect_all(storage)
        await storage.shared.settle()  # as every owner does that lives for a second more
    layout = storage.layout
    reachable: set[str] = set()
    for segment_id in log.segments:
        await storage.state(segment_id)
        view = storage._manifests.cached(segment_id)  # private: names are shown by nothing else
        if view is None:
            continue
        reachable |= {layout.chunk(chunk.id) for chunk in view.chunks}
        reachable |= {layout.manifest(name) for name in (view.name, view.base_name) if name is not None}
        for one in [one for origin in origins(segment_id, view.chunks) for one in await storage._owners.of(origin)]:
            if one.owner_id == segment_id:
                reachable.add(layout.foreign_owner(one))
    await collect_all(storage)
    found = {
        info.name
        for prefix in (layout.chunks, layout.manifests, layout.foreign_owners)
        async for info in storage.shared.list(prefix)
        if layout.epoch_in(info.name) < log.epoch
    }
    if puts_were_late:
        found -= {name for name in found - reachable if layout.segment_in(name) not in log.segments and "/m/" in name}
    missing = {name for name in reachable if layout.epoch_in(name) < log.epoch} - found
    assert found <= reachable and not missing, f"left over: {found - reachable}, missing: {missing}"
    journals = {layout.parse_journal(info.name) async for info in chunks.list(layout.journals)}
    assert len(journals - {log.epoch}) <= kept_epochs_max
