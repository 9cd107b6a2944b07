"""Deadlines of many connections on one timer."""

from __future__ import annotations

import asyncio
from functools import partial

from segment_service.host.deadlines import DeadlineQueue
from tests.support.fakes.clock import ManualClock


async def test_callbacks_come_once_in_their_time_unless_they_are_discarded() -> None:
    clock = ManualClock()
    queue = DeadlineQueue(clock, 10.0)
    called: list[int] = []
    callbacks = [partial(called.append, number) for number in range(5)]
    running = asyncio.create_task(queue.run())
    for callback in callbacks[:3]:
        queue.add(callback)
        await clock.advance(1.0)
    queue.discard(callbacks[1])
    queue.add(callbacks[0])
    await clock.advance(9.5)
    assert called == [2]
    await clock.advance(1.0)
    assert called == [2, 0]
    await clock.advance(100.0)
    assert called == [2, 0] and len(queue) == 0
    queue.add(callbacks[4])
    await clock.advance(10.0)
    assert called == [2, 0, 4]
    running.cancel()


async def test_what_is_discarded_before_the_timer_looks_ends_nothing() -> None:
    clock = ManualClock()
    queue = DeadlineQueue(clock, 10.0)
    called: list[int] = []
    running = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    queue.add(partial(called.append, 1))
    one = partial(called.append, 2)
    queue.add(one)
    queue.discard(one)
    await asyncio.sleep(0)
    await clock.advance(10.0)
    assert called == [1]
    queue.add(one)
    queue.discard(one)
    await clock.advance(20.0)
    assert not running.done()
    queue.add(one)
    await clock.advance(10.0)
    assert called == [1, 2]
    running.cancel()
