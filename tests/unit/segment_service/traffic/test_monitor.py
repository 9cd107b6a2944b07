"""The ticks of a store over its containers, and the fate of reports."""

from __future__ import annotations

import pytest

from pravega_common.errors import Unavailable
from pravega_common.model.auto_scale_event import ScaleDirection
from segment_service.traffic import monitor as module
from segment_service.traffic.monitor import TrafficMonitor
from segment_service.traffic.settings import TrafficSettings
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.request_stream import InMemoryRequestStream
from tests.support.loop_turns import counted_turns
from tests.unit.segment_service.traffic.world import TrafficWorld

SEGMENTS = ("_system/_requeststream/0.#epoch.0", "_system/_requeststream/1.#epoch.0")
SHORT = TrafficSettings(tick_s=1.0, window_s=2.0, cooldown_s=3.0, mute_s=5.0, idle_s=30.0)


class Store:
    def __init__(self, settings: TrafficSettings = SHORT) -> None:
        self.containers = [TrafficWorld(0), TrafficWorld(1)]
        self.stream = InMemoryRequestStream(*SEGMENTS)
        self.clock = ManualClock()
        self.monitor = TrafficMonitor(lambda: self.containers, self.stream, settings, self.clock, lambda: 5)

    def written(self) -> list[tuple[str, ScaleDirection]]:
        return [(event.stream, event.direction) for events in self.stream.events.values() for event in events]

    async def run(self, seconds: int, *hot: tuple[TrafficWorld, int]) -> None:
        for _ in range(seconds):
            for world, segment in hot:
                world.append(segment, 1_000)
            await self.clock.advance(1.0)


async def test_segments_of_all_containers_are_reported_by_the_key_of_their_stream() -> None:
    store = Store()
    await store.monitor.start()
    await store.run(1)
    first = store.containers[0].create("scope/a/0.#epoch.0")
    second = store.containers[1].create("scope/b/0.#epoch.0")
    await store.run(6, (store.containers[0], first), (store.containers[1], second))
    assert sorted(store.written()) == [("a", ScaleDirection.UP), ("b", ScaleDirection.UP)]
    for segment, events in store.stream.events.items():
        assert all(event.request_segment == segment for event in events)
    assert store.monitor.written_total == 2 and store.monitor.watched_segments == 2
    await store.monitor.stop()


async def test_reports_that_cannot_be_written_are_counted_and_come_again() -> None:
    store = Store()
    await store.monitor.start()
    await store.run(1)
    segment = store.containers[0].create()
    store.stream.failure = Unavailable("no store owns it")
    await store.run(8, (store.containers[0], segment))
    dropped = store.monitor.dropped_total
    assert dropped == store.stream.calls >= 3 and store.written() == []
    store.stream.failure = None
    await store.run(1, (store.containers[0], segment))
    assert store.written() == [("stream", ScaleDirection.UP)]
    assert store.monitor.dropped_total == dropped
    await store.monitor.stop()


async def test_a_controller_that_never_made_the_stream_costs_a_call_a_tick() -> None:
    store = Store()
    store.stream.events.clear()
    await store.monitor.start()
    await store.run(1)
    segment = store.containers[0].create()
    await store.run(20, (store.containers[0], segment))
    assert 10 <= store.stream.calls <= 20
    assert store.monitor.is_running
    await store.monitor.stop()


async def test_many_reports_leave_in_bounded_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "reports_waiting_max", 30)
    monkeypatch.setattr(module, "reports_per_append_max", 10)
    store = Store()
    await store.monitor.start()
    await store.run(1)
    world = store.containers[0]
    segments = [world.create(f"scope/stream/{number}.#epoch.0") for number in range(40)]
    await store.run(6, *((world, segment) for segment in segments))
    assert store.monitor.written_total == 40
    assert store.monitor.dropped_total == 10
    assert store.stream.calls == 4
    await store.monitor.stop()


async def test_a_container_that_comes_back_is_watched_from_the_start() -> None:
    store = Store()
    await store.monitor.start()
    await store.run(1)
    gone = store.containers[0]
    segment = gone.create()
    await store.run(3, (gone, segment))
    store.containers[0] = TrafficWorld(0)
    await store.run(1)
    assert store.monitor.watched_segments == 0
    gone.append(segment, 1_000)
    assert gone.metadata.traffic.noted() == []
    await store.monitor.stop()


async def test_nothing_is_watched_when_it_is_switched_off() -> None:
    store = Store(TrafficSettings(is_enabled=False, tick_s=1.0))
    await store.monitor.start()
    segment = store.containers[0].create()
    await store.run(30, (store.containers[0], segment))
    assert store.monitor.watched_segments == 0
    assert store.containers[0].metadata.traffic.noted() == []
    await store.monitor.stop()


async def test_the_loop_has_its_turns_while_many_segments_are_found() -> None:
    """A container that comes with 100,000 segments of such streams held the loop for most of a second."""

    class Slow(ManualClock):
        def monotonic_s(self) -> float:
            self.looks = getattr(self, "looks", 0) + 1
            return super().monotonic_s() + self.looks

    store = Store()
    for number in range(50):
        store.containers[0].create(f"scope/{number}/0.#epoch.0")
    monitor = TrafficMonitor(lambda: store.containers, store.stream, SHORT, Slow(), lambda: 5)
    with counted_turns() as turns:
        await monitor.tick()
    assert monitor.watched_segments == 50
    assert turns.count >= 50
