"""Runs two whole controllers on one world; their reader group is real, on a segment store behind a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controller_service.event_processors import event_processor_group
from controller_service.service import Controller
from controller_service.workflows.auto_scale import AutoScale
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.names import MARK_PREFIX, REQUEST_STREAM, SYSTEM_SCOPE
from tests.support.event_world import REQUEST_SEGMENTS, EventWorld, event_world
from tests.support.eventually import eventually


def report(number: int) -> AutoScaleEvent:
    return AutoScaleEvent("s", f"t{number % 4}", 0, ScaleDirection.UP, 1_700_000_000_000, 2, False, number)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventWorld]:
    monkeypatch.setattr(event_processor_group, "take_over_period_s", 0.1)
    async with event_world() as made:
        made.parts.clients = made.clients
        yield made


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    async def note(_: AutoScale, event: AutoScaleEvent) -> None:
        found.append(event.request_id)

    monkeypatch.setattr(AutoScale, "handle", note)
    return found


async def online(*controllers: Controller) -> None:
    groups = [controller.events for controller in controllers]
    await eventually(lambda: all(group is not None and group.is_online for group in groups), "the readers")


async def write(world: EventWorld, controller: Controller, *numbers: int) -> None:
    """Write as a store does: from outside of the group."""
    source = world.source(controller, "writer")
    for number in numbers:
        await source.write(report(number).routing_key, report(number).to_bytes())
    await source.leave()


async def test_the_leader_makes_the_stream_and_all_instances_read_it(world: EventWorld, handled: list[int]) -> None:
    one, two = world.parts.controller(id="one"), world.parts.controller(id="two")
    await one.start()
    await two.start()
    try:
        await online(one, two)
        assert set(REQUEST_SEGMENTS) <= set(world.segments.segment_names)
        assert not any(MARK_PREFIX in name for name in world.segments.segment_names)
        streams, _ = await one.store.list_streams(SYSTEM_SCOPE)
        assert [name for name, _ in streams] == [REQUEST_STREAM]
        await write(world, one, *range(20))
        await eventually(lambda: len(handled) >= 20, "the handling")
        assert sorted(handled) == list(range(20))
    finally:
        await one.stop()
        await two.stop()


async def test_a_stopped_instance_leaves_and_repeats_nothing(world: EventWorld, handled: list[int]) -> None:
    one = world.parts.controller(id="one")
    await one.start()
    await online(one)
    await write(world, one, 1, 2, 3)
    await eventually(lambda: len(handled) == 3)
    await one.stop()
    two = world.parts.controller(id="two")
    await two.start()
    try:
        await online(two)
        await write(world, two, 4)
        await eventually(lambda: 4 in handled)
        assert sorted(handled) == [1, 2, 3, 4]
        assert two.events is not None
        assert two.events._source.other_readers() == []
    finally:
        await two.stop()


async def test_the_events_of_a_dead_instance_are_handled_by_another(world: EventWorld, handled: list[int]) -> None:
    """The first one stands still for good, as after SIGKILL: it neither reads nor leaves, and its lease ends."""
    one, two = world.parts.controller(id="dead"), world.parts.controller(id="heir")
    await one.start()
    await online(one)
    events = one.events
    assert events is not None and events._reading is not None
    events._reading.cancel()
    await eventually(lambda: events._reading is not None and events._reading.done())
    await two.start()
    await online(two)
    await write(world, two, *range(8))
    await one.membership.stop()
    try:
        await eventually(lambda: set(handled) == set(range(8)), "the take-over")
        for stream in range(4):
            mine = [number for number in handled if number % 4 == stream]
            assert mine == sorted(mine)
    finally:
        await two.stop()
        await one.stop()
