"""Looks at things again when somebody asks and the last look is too long ago, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended

ItemT = TypeVar("ItemT")


class Looks:
    """Serves those who ask one after the other, so that one look is enough for all of them."""

    def __init__(self, clock: Clock, *, age_max_s: float, time_max_s: float, at_once_max: int) -> None:
        """``age_max_s``: of a look that is good enough. ``time_max_s``: of one look at everything."""
        self._clock = clock
        self._age_max_s = age_max_s
        self._time_max_s = time_max_s
        self._at_once_max = at_once_max
        self._looked_s = float("-inf")
        self._looking = asyncio.Lock()

    async def look(self, items: Callable[[], Sequence[ItemT]], look_at: Callable[[ItemT], Awaitable[None]]) -> bool:
        """Look at each item unless the last look is good enough; false if the time was not enough for all."""
        async with self._looking:
            now_s = self._clock.monotonic_s()
            if now_s - self._looked_s < self._age_max_s:
                return True
            self._looked_s = now_s
            try:
                async with asyncio.timeout(self._time_max_s):
                    await self._look_at_all(items(), look_at)
            except TimeoutError:
                return False
            return True

    async def _look_at_all(self, items: Sequence[ItemT], look_at: Callable[[ItemT], Awaitable[None]]) -> None:
        for first in range(0, len(items), self._at_once_max):
            await all_ended(map(look_at, items[first : first + self._at_once_max]))
