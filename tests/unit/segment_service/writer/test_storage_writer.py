"""In the end Tier 2 holds exactly the committed bytes, for all operations and all failures on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from pravega_common.errors import ContainerOffline
from pravega_common.runtime import failpoints
from segment_service.contracts.operations import Barrier
from segment_service.contracts.segment_storage import StorageState
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer import segment_aggregator
from segment_service.writer.config import WriterConfig
from segment_service.writer.storage_writer import StorageWriter
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.fakes.writer_source import CommittedLog, FakeWriterDataSource, State
from tests.unit.segment_service.storage.world import YieldingClock, retried

CONFIG = WriterConfig(
    flush_bytes=100,
    flush_age_s=0.3,
    transaction_age_s=1.0,
    behind_bytes_max=2000,
    flushes_at_once_max=3,
    retry_delay_min_s=0.01,
    retry_delay_max_s=0.05,
    operations_per_read_max=7,
)
WRITER_FAILPOINTS = sorted(name for name in failpoints.KNOWN if name.startswith("writer."))


@pytest.fixture(autouse=True)
def _small_writes(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(segment_aggregator, "write_bytes_max", 150)
    yield
    failpoints.disarm_all()


class Owner:
    """A container at one epoch with its storage writer."""

    def __init__(self, log: CommittedLog, chunks: InMemoryChunkStorage, rng: random.Random, rates: FaultRates) -> None:
        self.log = log
        self.chunks = FaultyChunkStorage(chunks, rng, YieldingClock(rng), rates)
        self.container = FakeWriterDataSource(log)
        self.storage = RollingStorage(self.chunks, 1, YieldingClock(rng), background=False)
        self.writer = StorageWriter(self.container, self.storage, YieldingClock(rng), CONFIG, rng)

    async def start(self) -> None:
        await self.storage.start(self.container.epoch, self.container.check_owner, self.container.log_state)
        await self.writer.start()

    async def stop(self) -> None:
        await self.writer.stop()
        await self.storage.close()

    async def settle(self) -> None:
        """Wait until all that is committed is acknowledged."""
        self.log.commit(Barrier(sequence_number=self.log.next_sequence))
        self.container.show_all()
        flushed = asyncio.ensure_future(self.writer.flush(self.container.last_sequence))
        failed = asyncio.ensure_future(self.writer.wait_stopped())
        await asyncio.wait((flushed, failed), return_when=asyncio.FIRST_COMPLETED, timeout=20)
        if failed.done():
            await failed
        assert flushed.done(), f"stuck at {self.writer.acknowledged} of {self.container.last_sequence}"
        failed.cancel()


async def new_owner(log: CommittedLog, chunks: InMemoryChunkStorage, rng: random.Random, rates: FaultRates) -> Owner:
    async def once() -> Owner:
        owner = Owner(log, chunks, rng, rates)
        await owner.start()
        return owner

    opened: Owner = await retried(once)
    return opened


async def verify(owner: Owner, log: CommittedLog, chunks: InMemoryChunkStorage) -> None:
    assert owner.container.acknowledged == log.sequence
    assert owner.container.state.segments.keys() == {one.segment_id for one in log.live()}
    for segment in log.live():
        notified = owner.container.state.segments[segment.segment_id]
        assert notified.storage_length == segment.length
        state = await retried(lambda segment=segment: owner.storage.state(segment.segment_id))
        if state is None:
            assert segment.length == 0
            continue
        assert state == StorageState(segment.segment_id, segment.start_offset, segment.length, segment.is_sealed)
        found = await retried(
            lambda segment=segment: owner.storage.read(
                segment.segment_id, segment.start_offset, segment.length - segment.start_offset
            )
        )
        assert found == log.bytes[segment.segment_id][segment.start_offset :]


async def turns(rng: random.Random) -> None:
    for _ in range(rng.choice((0, 10, 100, 600))):
        await asyncio.sleep(0)


FAILED_ONCE = (238,)


@pytest.mark.parametrize("seed", (*range(40), *FAILED_ONCE))
async def test_tier_2_equals_the_log(seed: int) -> None:
    rng = random.Random(seed)
    chunks = InMemoryChunkStorage()
    log = CommittedLog()
    owner = await new_owner(log, chunks, rng, FaultRates(delay_max_s=0.01))
    for _ in range(6):
        log.commit_random(rng, rng.randrange(1, 40))
        owner.container.show_all()
        await turns(rng)
    await owner.settle()
    await verify(owner, log, chunks)
    await owner.stop()


@pytest.mark.parametrize("seed", range(60))
async def test_tier_2_equals_the_log_through_faults_and_owners(seed: int) -> None:
    rng = random.Random(seed)
    chunks = InMemoryChunkStorage()
    log = CommittedLog()
    rates = FaultRates(unavailable=0.05, unknown_done=0.03, unknown_lost=0.03, unknown_late=0.03, delay_max_s=0.01)
    owners: list[Owner] = []
    for _ in range(4):
        owner = await new_owner(log, chunks, rng, rates)
        owners.append(owner)
        for _ in range(rng.randrange(1, 5)):
            log.commit_random(rng, rng.randrange(1, 25))
            owner.container.show_all()
            await turns(rng)
        drawn = rng.random()
        if drawn < 0.5:
            await owner.stop()
        elif drawn < 0.7:
            await owner.settle()
            await verify(owner, log, chunks)
        # else it goes on without knowing that it is not the owner any more
    last = await new_owner(log, chunks, rng, rates)
    await last.settle()
    for owner in owners:
        await owner.stop()
        await owner.chunks.land_late_puts()
    await verify(last, log, chunks)
    await last.stop()


async def test_whoever_waits_for_a_flush_learns_that_the_writer_stopped() -> None:
    rng = random.Random(1)
    log = CommittedLog()
    owner = await new_owner(log, InMemoryChunkStorage(), rng, FaultRates())
    log.commit_random(rng, 10)
    owner.container.show_all()
    owner.chunks.stop()
    flushing = asyncio.create_task(owner.writer.flush(owner.container.last_sequence))
    await asyncio.sleep(0)
    await owner.stop()
    with pytest.raises(ContainerOffline):
        await flushing


@pytest.mark.parametrize("name", WRITER_FAILPOINTS)
@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_at_any_point_of_the_writer_loses_nothing(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    chunks = InMemoryChunkStorage()
    log = CommittedLog()
    for _ in range(4):
        owner = await new_owner(log, chunks, rng, FaultRates(delay_max_s=0.01))
        crashed = asyncio.Event()
        failpoints.arm(name, _crash_at(rng.randrange(1, 4), crashed))
        log.commit_random(rng, 50)
        owner.container.show_all()
        for _ in range(3000):
            if crashed.is_set():
                break
            await asyncio.sleep(0)
        failpoints.disarm_all()
        await owner.stop()
    owner = await new_owner(log, chunks, rng, FaultRates())
    await owner.settle()
    await verify(owner, log, chunks)
    await owner.stop()


@pytest.mark.parametrize("seed", range(40))
async def test_no_effect_is_in_tier_2_before_a_mark_covers_it(seed: int) -> None:
    rng = random.Random(seed)
    chunks = InMemoryChunkStorage()
    log = CommittedLog()
    rates = FaultRates(unavailable=0.05, unknown_done=0.03, unknown_lost=0.03, unknown_late=0.03, delay_max_s=0.01)
    for _ in range(2):
        owner = await new_owner(log, chunks, rng, rates)
        for _ in range(12):
            log.commit_random(rng, rng.randrange(1, 8))
            owner.container.show_all()
            await turns(rng)
            await assert_marked(chunks, log)
        await owner.stop()
        await owner.chunks.land_late_puts()
        await assert_marked(chunks, log)


async def assert_marked(chunks: InMemoryChunkStorage, log: CommittedLog) -> None:
    """All that a copy of Tier 2 shows follows from the operations up to the high water of its newest mark."""
    copied = InMemoryChunkStorage()
    for name, data in chunks.objects.items():
        await copied.put(name, [data])
    storage = RollingStorage(copied, 1, YieldingClock(random.Random(0)), background=False)
    mark = await storage.newest_mark()
    assert mark is not None and mark.log is not None
    covered = State()
    for operation in log.operations:
        if operation.sequence_number <= mark.log.high_water:
            covered.apply(operation)
    state = mark.log
    await storage.start(mark.epoch + 1, _no_barrier, lambda: state)
    for segment_id in log.bytes:
        known, found = covered.segments.get(segment_id), await storage.state(segment_id)
        view = storage._manifests.cached(segment_id)  # private: a tombstone is shown by nothing else
        if view is not None and view.is_deleted:
            assert known is not None and (known.is_deleted or known.is_merged), f"the end of segment {segment_id}"
        elif found is not None:
            assert known is not None, f"segment {segment_id}"
            assert found.length <= known.length, f"bytes of segment {segment_id}"
            assert found.start_offset <= known.start_offset, f"the truncation of segment {segment_id}"
            assert known.is_sealed or not found.is_sealed, f"the seal of segment {segment_id}"


async def _no_barrier() -> None:
    """Returns at once."""


class Crash(BaseException):
    """The end of a process: nobody handles it."""


def _crash_at(hit: int, crashed: asyncio.Event) -> Callable[[], None]:
    hits = 0

    def action() -> None:
        nonlocal hits
        hits += 1
        if hits == hit:
            crashed.set()
            raise Crash

    return action
