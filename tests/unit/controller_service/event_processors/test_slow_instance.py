"""Takes a live controller for dead while its handlers stand still; its reader group is real, behind a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller_service.event_processors.request_events import EventKind, RequestEvents
from pravega_common.model.auto_scale_event import AUTO_SCALE_TYPE, AutoScaleEvent
from tests.support.event_world import EventWorld
from tests.support.eventually import eventually
from tests.unit.controller_service.event_processors.test_two_instances import online, world, write

__all__ = ["world"]


async def test_a_slow_instance_that_is_taken_for_dead_is_cut_off_and_joins_again(
    world: EventWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both believe for a while that they own the segments; what the slow one does to the group changes nothing."""
    gate = asyncio.Event()
    begun: list[int] = []
    ended: list[int] = []

    async def stand_still_once(event: AutoScaleEvent) -> None:
        is_first = event.request_id in (0, 1) and event.request_id not in begun
        begun.append(event.request_id)
        if is_first:
            await gate.wait()
        ended.append(event.request_id)

    slow, heir = world.parts.controller(id="slow"), world.parts.controller(id="heir")
    for controller in (slow, heir):
        assert controller.events is not None
        controller.events._processor = RequestEvents(
            {AUTO_SCALE_TYPE: EventKind(AutoScaleEvent.from_bytes, stand_still_once)}
        )
    await slow.start()
    await online(slow)
    await write(world, slow, 0, 1)
    await eventually(lambda: len(begun) == 2, "the handlers of the slow instance")
    await heir.start()
    await online(heir)
    lease = world.parts.cpo
    listed = lease.members

    async def without_slow(kind: str) -> dict[str, Any]:
        return {name: member for name, member in (await listed(kind)).items() if name != slow.member_id}

    monkeypatch.setattr(lease, "members", without_slow)
    try:
        await eventually(lambda: sorted(ended) == [0, 1], "the take-over")
        monkeypatch.setattr(lease, "members", listed)
        await eventually(lambda: slow.events is not None and slow.events.counts.rejoined == 1, "the end of the old one")
        await online(slow)
        gate.set()
        await write(world, heir, 2, 3, 4, 5)
        await eventually(lambda: {2, 3, 4, 5} <= set(ended), "the later events")
        assert [ended.count(number) for number in range(6)] == [1] * 6, "the handlers of the slow one were cut off"
    finally:
        await heir.stop()
        await slow.stop()
