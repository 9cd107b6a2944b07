"""What a burst of requests leaves for Tier 2 waits until the callers of the burst are answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from segment_service.contracts.operations import MapSegment, Operation
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from segment_service.writer.storage_writer import StorageWriter
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.writer_source import CommittedLog, FakeWriterDataSource

TARGET, SOURCE = 1, 2
TRANSACTION = "scope/stream/0.#epoch.0#transaction." + "0" * 32


class Burst:
    """A storage writer over a log of two segments, of which one is a transaction's."""

    def __init__(self, config: WriterConfig) -> None:
        self.clock, self.log = ManualClock(), CommittedLog()
        self.log.commit(MapSegment(sequence_number=1, name="scope/stream/0.#epoch.0", segment_id=TARGET))
        self.log.commit(MapSegment(sequence_number=2, name=TRANSACTION, segment_id=SOURCE))
        self.source = FakeWriterDataSource(self.log)
        self.reads: list[int] = []
        read = self.source.read_operations

        async def counted(after: int, count_max: int) -> Sequence[Operation]:
            found = await read(after, count_max)
            self.reads.append(len(found))
            return found

        self.source.read_operations = counted  # type: ignore[method-assign]
        self.storage = RollingStorage(InMemoryChunkStorage(), 1, self.clock, background=False)
        self.writer = StorageWriter(self.source, self.storage, self.clock, config, random.Random(1))

    def append(self, segment_id: int, length: int) -> None:
        self.log.append(segment_id, bytes(length))
        self.source.show_all()

    async def pass_time(self, time_s: float) -> None:
        for _ in range(round(time_s / 0.05)):
            await self.clock.advance(0.05)
            for _ in range(20):
                await asyncio.sleep(0)

    async def stored(self, segment_id: int) -> int:
        state = await self.storage.state(segment_id)
        return 0 if state is None else state.length


@asynccontextmanager
async def running(config: WriterConfig) -> AsyncIterator[Burst]:
    burst = Burst(config)
    await burst.storage.start(burst.source.epoch, burst.source.check_owner, burst.source.log_state)
    await burst.writer.start()
    await burst.pass_time(0.05)
    yield burst
    await burst.writer.stop()
    await burst.storage.close()


async def test_a_merge_waits_for_its_age() -> None:
    async with running(WriterConfig(gather_s=0.0, merge_age_s=0.5, flush_age_s=60.0)) as burst:
        burst.append(SOURCE, 10)
        await burst.writer.flush(burst.source.last_sequence)
        assert await burst.stored(SOURCE) == 10, "what is not in Tier 2 yet becomes a part of the target"
        burst.log.merge(TARGET, SOURCE)
        burst.source.show_all()
        await burst.pass_time(0.4)
        assert await burst.stored(TARGET) == 0
        await burst.pass_time(0.3)
        assert await burst.stored(TARGET) == 10


async def test_operations_of_a_burst_are_read_together() -> None:
    async with running(WriterConfig(gather_s=1.0, burst_operations_min=1)) as burst:
        del burst.reads[:]
        await burst.pass_time(1.0)
        for _ in range(6):
            burst.append(TARGET, 10)
            await burst.pass_time(0.1)
        assert burst.reads == [1], "the first one is taken at once, the others wait for the end of the pause"
        await burst.pass_time(0.6)
        assert burst.reads == [1, 5]


async def test_few_operations_are_no_burst() -> None:
    async with running(WriterConfig(gather_s=1_000.0, burst_operations_min=2)) as burst:
        await burst.writer.flush(burst.source.last_sequence)  # ends the pause after the two mappings
        del burst.reads[:]
        for _ in range(3):
            burst.append(TARGET, 10)
            await burst.pass_time(0.1)
        assert burst.reads == [1, 1, 1]


async def test_only_a_small_read_is_followed_by_a_pause_and_a_flush_ends_it() -> None:
    config = WriterConfig(
        gather_s=1_000.0, flush_bytes=100, flush_age_s=1_000.0, operations_per_read_max=2, burst_operations_min=1
    )
    async with running(config) as burst:
        assert burst.reads == [2], "both mappings: as many as one read takes"
        burst.append(TARGET, 100)
        await burst.pass_time(0.1)
        assert burst.reads[1:] == [1], "as many bytes as are flushed at once"
        burst.append(TARGET, 10)
        await burst.pass_time(0.1)
        assert burst.reads[2:] == [1]
        burst.append(TARGET, 10)
        await burst.pass_time(0.1)
        assert burst.reads[3:] == [], "the pause"
        flushed = asyncio.ensure_future(burst.writer.flush(burst.source.last_sequence))
        await burst.pass_time(0.3)
        assert flushed.done() and await burst.stored(TARGET) == 120


async def test_others_have_their_turn_while_the_log_is_far_ahead() -> None:
    reads = 20
    async with running(WriterConfig(gather_s=0.0, operations_per_read_max=2)) as burst:
        del burst.reads[:]
        turns, last = 0, burst.source.last_sequence + 2 * reads
        for _ in range(2 * reads):
            burst.log.append(TARGET, bytes(10))
        burst.source.show_all()
        while burst.writer._acks.last_read < last:
            await asyncio.sleep(0)
            turns += 1
        assert burst.reads == [2] * reads and turns >= reads
