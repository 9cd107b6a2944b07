"""Calls back what was added a fixed time ago, with one timer for all connections of a server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from pravega_common.runtime.clock import Clock


class DeadlineQueue:
    """Callbacks in the order in which they fall due, which is that in which they were added: all wait equally long."""

    def __init__(self, clock: Clock, after_s: float) -> None:
        self.after_s = after_s
        self._clock = clock
        self._due_at_s: OrderedDict[Callable[[], None], float] = OrderedDict()
        self._has_some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due_at_s)

    def add(self, callback: Callable[[], None]) -> None:
        """Call this once after the time of the queue, unless it is discarded before. Adding it again starts its time
        again."""
        self._due_at_s[callback] = self._clock.monotonic_s() + self.after_s
        self._due_at_s.move_to_end(callback)
        self._has_some.set()

    def discard(self, callback: Callable[[], None]) -> None:
        self._due_at_s.pop(callback, None)

    async def run(self) -> None:
        """Call what falls due, until cancelled."""
        while True:
            while not self._due_at_s:
                self._has_some.clear()
                await self._has_some.wait()
            left_s = next(iter(self._due_at_s.values())) - self._clock.monotonic_s()
            if left_s > 0:
                await self._clock.sleep(left_s)
                continue
            # In no variable: what a callback belongs to may end while others are waited for.
            self._due_at_s.popitem(last=False)[0]()
