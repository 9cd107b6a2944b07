"""The traffic of streams, from what a container commits and what readers are sent."""

from __future__ import annotations

import pytest

from segment_service.contracts.attributes import EVENT_COUNT, AttributeUpdate, AttributeUpdateType
from segment_service.host import read_notes as read_notes_module
from segment_service.host.read_notes import ReadNotes
from segment_service.traffic.busiest_streams import StreamTraffic
from segment_service.traffic.stream_watch import StreamWatch, follow_s, tick_s
from tests.support.containers import ContainerKit
from tests.support.fakes.clock import ManualClock
from tests.unit.segment_service.traffic.world import TrafficWorld

FIRST, SECOND = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"


class Store:
    """Two containers, whose segments grow by operations of their logs."""

    def __init__(self, streams_max: int = 10) -> None:
        self.containers = [TrafficWorld(0), TrafficWorld(1)]
        self.reads = ReadNotes()
        self.clock = ManualClock()
        self.watch = StreamWatch(lambda: self.containers, self.reads, self.clock, streams_max)

    async def tick(self) -> None:
        await self.clock.advance(tick_s)

    def grow(self, world: TrafficWorld, segment_id: int, events: int, length: int) -> None:
        """As ``MemoryState`` does for the first append of a frame."""
        world.metadata.growth.grows(world.metadata.segments[segment_id])
        world.append(segment_id, events, length)


async def test_a_stream_has_the_sum_over_its_segments_and_containers() -> None:
    store = Store()
    await store.watch.start()
    first, second = store.containers
    one, two = first.create(FIRST), second.create(SECOND)
    store.grow(first, one, 3, 100)
    store.grow(first, one, 4, 200)
    store.grow(second, two, 5, 50)
    await store.tick()
    assert store.watch.streams.listed == {"scope/stream": StreamTraffic(350, 12, 0)}
    await store.tick()
    store.grow(first, one, 1, 1)
    await store.tick()
    assert store.watch.streams.listed == {"scope/stream": StreamTraffic(351, 13, 0)}
    await store.watch.stop()


async def test_a_transaction_counts_when_it_is_merged() -> None:
    store = Store()
    await store.watch.start()
    world = store.containers[0]
    target = world.create(FIRST)
    world.merge(target, 7, 700, life_ms=5)
    await store.tick()
    assert store.watch.streams.listed["scope/stream"].in_bytes == 700
    await store.watch.stop()


async def test_internal_segments_are_no_streams() -> None:
    store = Store()
    await store.watch.start()
    world = store.containers[0]
    for name in ("_system/_requeststream/0.#epoch.0", FIRST + "#index", f"{FIRST}#transaction.{1:032x}"):
        store.grow(world, world.create(name), 1, 10)
        store.reads.note(name, 10)
    await store.tick()
    assert not store.watch.streams.listed and store.watch.streams.others == StreamTraffic()
    await store.watch.stop()


async def test_reads_are_counted_and_those_beyond_the_limit_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_notes_module, "segments_max", 2)
    store = Store()
    await store.watch.start()
    for name in (FIRST, SECOND, "scope/other/0.#epoch.0", FIRST):
        store.reads.note(name, 1_000)
    await store.tick()
    assert store.watch.streams.listed == {"scope/stream": StreamTraffic(out_bytes=3_000)}
    assert store.watch.streams.others == StreamTraffic(out_bytes=1_000)
    await store.watch.stop()


async def test_what_a_container_had_before_it_was_watched_is_no_traffic() -> None:
    store = Store()
    world = store.containers[0]
    segment = world.create(FIRST)
    store.grow(world, segment, 1, 1_000)
    await store.watch.start()
    store.grow(world, segment, 1, 10)
    await store.tick()
    assert store.watch.streams.listed["scope/stream"].in_bytes == 10
    gone, store.containers[0] = world, TrafficWorld(0)
    await store.tick()
    store.grow(gone, segment, 1, 10)
    assert gone.metadata.growth.noted() == [], "a container that left is not watched"
    await store.watch.stop()


async def test_a_container_that_comes_is_watched_before_the_next_tick() -> None:
    store = Store()
    await store.watch.start()
    world = TrafficWorld(2)
    store.containers.append(world)
    await store.clock.advance(follow_s)
    store.grow(world, world.create(FIRST), 1, 10)
    await store.tick()
    assert store.watch.streams.listed["scope/stream"].in_bytes == 10
    await store.watch.stop()


async def test_nothing_is_noted_when_no_stream_may_be_listed() -> None:
    store = Store(streams_max=0)
    await store.watch.start()
    world = store.containers[0]
    store.grow(world, world.create(FIRST), 1, 10)
    store.reads.note(FIRST, 10)
    await store.tick()
    assert world.metadata.growth.noted() == [] and store.reads.take() == {}
    await store.watch.stop()


async def test_appends_of_a_real_container_are_counted() -> None:
    container = await ContainerKit().open()
    clock = ManualClock()
    watch = StreamWatch(lambda: [container], ReadNotes(), clock, 10)
    await container.create_segment(FIRST)
    events = (AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 2),)
    await container.append(FIRST, (bytes(100),), events)
    await watch.start()
    for _ in range(3):
        await container.append(FIRST, (bytes(100),), events)
    await clock.advance(tick_s)
    assert watch.streams.listed == {"scope/stream": StreamTraffic(300, 6, 0)}
    await watch.stop()
    await container.stop()
