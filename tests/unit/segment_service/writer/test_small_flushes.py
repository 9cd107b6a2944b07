"""Flushes of few bytes have places beside those of large ones, where Tier 2 puts what they bring together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from segment_service.contracts.buffer import Buffer
from segment_service.contracts.operations import MapSegment
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig, starts_per_turn_max
from segment_service.writer.storage_writer import StorageWriter
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.writer_source import CommittedLog, FakeWriterDataSource

CONFIG = WriterConfig(quiet_age_ratio=1.0, flushes_at_once_max=2, small_flushes_at_once_max=5, small_flush_bytes=100)
SEGMENTS = 30


class HeldStorage(RollingStorage):
    """Holds every write until it is let go, and knows which ones are under way."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(InMemoryChunkStorage(), 1, clock, background=False)
        self.under_way: dict[int, int] = {}
        self.most: list[tuple[int, int]] = []
        self.go = asyncio.Event()

    async def write(self, segment_id: int, offset: int, data: Sequence[Buffer], sequence: int | None = None) -> None:
        self.under_way[segment_id] = sum(map(len, data))
        small = sum(length <= CONFIG.small_flush_bytes for length in self.under_way.values())
        self.most.append((small, len(self.under_way) - small))
        await self.go.wait()
        await super().write(segment_id, offset, data, sequence)
        del self.under_way[segment_id]


async def started(
    clock: ManualClock, config: WriterConfig
) -> tuple[StorageWriter, HeldStorage, FakeWriterDataSource, CommittedLog]:
    """A writer, its storage and its source, whose log has segments without bytes."""
    log = CommittedLog()
    for number in range(1, SEGMENTS + 1):
        log.commit(MapSegment(sequence_number=number, name=f"scope/segment-{number}", segment_id=number))
    source = FakeWriterDataSource(log)
    storage = HeldStorage(clock)
    await storage.start(source.epoch, source.check_owner, source.log_state)
    writer = StorageWriter(source, storage, clock, config, random.Random(1))
    await writer.start()
    return writer, storage, source, log


async def test_small_flushes_have_places_of_their_own() -> None:
    clock = ManualClock()
    writer, storage, source, log = await started(clock, CONFIG)
    for number in range(1, SEGMENTS + 1):
        log.append(number, b"x" * (10 if number % 3 else 1_000))
    source.show_all()
    for _ in range(30):
        await clock.advance(CONFIG.tick_s)
    assert len(storage.under_way) <= CONFIG.flushes_at_once_max + CONFIG.small_flushes_at_once_max
    assert max(large for _, large in storage.most) == CONFIG.flushes_at_once_max
    storage.go.set()
    await eventually(lambda: source.acknowledged >= 2 * SEGMENTS)
    assert max(large for _, large in storage.most) <= CONFIG.flushes_at_once_max
    assert max(small for small, _ in storage.most) > CONFIG.flushes_at_once_max
    await writer.stop()
    await storage.close()


async def test_few_flushes_begin_in_one_turn_of_the_loop() -> None:
    """Appends that wait for the loop do not wait for all that fell due."""
    clock = ManualClock()
    writer, storage, source, log = await started(clock, WriterConfig(small_flushes_at_once_max=SEGMENTS))
    for number in range(1, SEGMENTS + 1):
        log.append(number, b"x" * 10)
    source.show_all()
    began = []
    flushing = asyncio.create_task(writer.flush(2 * SEGMENTS))
    while len(storage.under_way) < SEGMENTS:
        before = len(storage.under_way)
        await asyncio.sleep(0)
        began.append(len(storage.under_way) - before)
        assert len(began) < 10_000
    assert max(began) <= starts_per_turn_max
    storage.go.set()
    await flushing
    await writer.stop()
    await storage.close()
