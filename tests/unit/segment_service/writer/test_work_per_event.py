"""The storage writer's work follows what happens, not how many segments there are."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pravega_common.services.latency import LatencyCounts
from segment_service.contracts.operations import MapSegment
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from segment_service.writer.segment_aggregator import SegmentAggregator
from segment_service.writer.storage_writer import StorageWriter
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.writer_source import CommittedLog, FakeWriterDataSource

segments = 1_000
looks_per_event_max = 20
CONFIG = WriterConfig(flush_age_s=1_000.0, operations_per_read_max=100, idle_segments_max=100)


class World:
    """A writer over a log of ``segments`` segments, and how often it looked at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: WriterConfig) -> None:
        self.looks = 0
        self.clock = ManualClock()
        self.log = CommittedLog()
        for number in range(1, segments + 1):
            self.log.commit(MapSegment(sequence_number=number, name=f"scope/segment-{number}", segment_id=number))
        self.source = FakeWriterDataSource(self.log)
        self.storage = RollingStorage(InMemoryChunkStorage(), 1, self.clock, background=False)
        self.flushes = LatencyCounts()
        self.writer = StorageWriter(self.source, self.storage, self.clock, config, random.Random(1), self.flushes)
        for name in ("is_idle", "first_sequence"):
            self._count(monkeypatch, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        plain = getattr(SegmentAggregator, name)

        def counted(aggregator: SegmentAggregator) -> object:
            self.looks += 1
            return plain.fget(aggregator)

        monkeypatch.setattr(SegmentAggregator, name, property(counted))

    async def start(self) -> None:
        await self.storage.start(self.source.epoch, self.source.check_owner, self.source.log_state)
        await self.writer.start()
        await self.settle()

    async def append(self, segment_id: int) -> None:
        self.log.append(segment_id, b"0123456789")
        self.source.show_all()

    async def settle(self) -> None:
        """Let the writer read all that is committed, and look at it."""
        for _ in range(20):
            await self.clock.advance(CONFIG.tick_s)

    async def stop(self) -> None:
        await self.writer.stop()
        await self.storage.close()


@pytest.fixture(params=[CONFIG.quiet_log_bytes, 1], ids=["quiet", "busy"])
async def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World(monkeypatch, replace(CONFIG, quiet_log_bytes=request.param))
    await made.start()
    yield made
    await made.stop()


async def all_wait(world: World) -> None:
    for segment_id in range(1, segments + 1):
        await world.append(segment_id)
    await world.settle()
    assert world.source.acknowledged == segments
    world.looks = 0


async def test_time_that_passes_costs_nothing(world: World) -> None:
    await all_wait(world)
    for _ in range(100):
        await world.clock.advance(CONFIG.tick_s)
    assert world.looks == 0


async def test_an_append_is_a_look_at_its_own_segment(world: World) -> None:
    await all_wait(world)
    events = 50
    for number in range(events):
        await world.append(1 + number % 3)
        await world.settle()
    assert 0 < world.looks <= events * looks_per_event_max


async def test_a_flush_is_a_look_at_its_own_segment(world: World) -> None:
    """Segments are flushed one after the other, while all others wait, and each is acknowledged."""
    await all_wait(world)
    events = 50
    first = segments + 1
    for number in range(events):
        sequence = first + number
        await world.writer.flush(sequence)
        await eventually(lambda sequence=sequence: world.source.acknowledged >= sequence)  # type: ignore[misc]
    assert world.source.acknowledged < first + 2 * events
    assert world.looks <= events * looks_per_event_max
    assert world.flushes.count == world.writer.flusher.writes > 0


async def test_idle_segments_are_not_looked_through(world: World) -> None:
    """Ten times as many are idle as are remembered."""
    world.looks = 0
    events = 50
    for number in range(events):
        await world.append(1 + number)
        await world.writer.flush(world.log.sequence)
    assert 0 < world.looks <= events * looks_per_event_max


async def test_a_flush_of_all_looks_at_each_a_few_times(world: World) -> None:
    await all_wait(world)
    await world.writer.flush(world.log.sequence)
    await world.settle()
    assert world.source.acknowledged == world.log.sequence
    assert world.looks <= segments * looks_per_event_max
