"""Provides a clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from pravega_common.runtime.clock import SystemClock


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start_s: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_s = start_s
        self._wall_offset_ms = wall_ms - int(start_s * 1000)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return int(self._now_s * 1000) + self._wall_offset_ms

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + delay_s, next(self._tickets), waiter))
        await waiter

    def suspend(self, slept_s: float) -> None:
        """The machine sleeps: only the time of day goes on."""
        self._wall_offset_ms += int(slept_s * 1000)

    async def advance(self, delta_s: float) -> None:
        """Moves time forward, waking sleepers in order and letting each run before the next."""
        target_s = self._now_s + delta_s
        while self._sleepers and self._sleepers[0][0] <= target_s:
            self._now_s, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)
            for _ in range(10):
                await asyncio.sleep(0)
        self._now_s = target_s
        await asyncio.sleep(0)


class ShiftedClock(SystemClock):
    """Waits as long as asked, but its time is the test's: it stands still, and what ``now_ms`` is moved by goes by at
    once."""

    now_ms = 1_700_000_000_000
    set_by_ms = 0
    """By how much its time of day alone was set."""

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms + self.set_by_ms


class AheadClock(SystemClock):
    """The clock of the machine, but for a time of day that a test puts forward."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms
