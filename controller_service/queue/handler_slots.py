"""Limits the handlers that run at once, so that slow ones do not keep quick ones waiting.

A handler that calls a store which is away waits for up to a minute. With one limit for all, a hundred of these would
hold up every other stream. So a handler that takes long leaves its place to the next one and counts as slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.runtime.clock import Clock

quick_handlers_max: Final = 100
"""Handlers that run at once and have not taken long yet."""
slow_handlers_max: Final = 400
"""Handlers that take long. When these are too many the next slow ones keep their places among the quick."""
slow_after_s: Final = 1.0
"""A handler that has taken this long is slow; most take milliseconds."""


@dataclass(slots=True)
class _Place:
    is_slow: bool = False


class HandlerSlots:
    """``spawn`` runs a coroutine in the background, under a name."""

    def __init__(self, clock: Clock, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]) -> None:
        self._clock = clock
        self._spawn = spawn
        self._quick = asyncio.Semaphore(quick_handlers_max)
        self._slow = asyncio.Semaphore(slow_handlers_max)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for one handler; waits while too many quick ones run."""
        await self._quick.acquire()
        place = _Place()
        moving = self._spawn(self._move(place), "slow handler")
        try:
            yield
        finally:
            moving.cancel()
            (self._slow if place.is_slow else self._quick).release()

    async def _move(self, place: _Place) -> None:
        await self._clock.sleep(slow_after_s)
        await self._slow.acquire()
        place.is_slow = True
        self._quick.release()
