"""Measures the bytes of one scope in one direction against its limit a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pravega_common.runtime.clock import Clock

burst_s: Final = 1.0
"""Time whose bytes may come at once after a pause."""
debt_max_s: Final = 60.0
"""Time that a single append or answer may cost those behind it; what is worth more is not held to the limit exactly."""
look_s: Final = 0.5
"""Pause of the first in line between two looks at the limit, which may change or go."""

pause_min_s: Final = 0.001
"""Least pause of the first in line: a remainder of a byte is no reason to look again at once."""


class ByteBucket:
    """Lets bytes through while it owes none; they may then make it owe some, so nothing is too large for it."""

    def __init__(self, rate: float, clock: Clock) -> None:
        """``rate`` in bytes a second."""
        self.waiting = 0
        """Those in line, with the one whose turn it is."""
        self.waited_s = 0.0
        """Time that all of them have waited together."""
        self._rate: float | None = rate
        self._clock = clock
        self._level = rate * burst_s
        self._at_s = clock.monotonic_s()
        self._line = asyncio.Lock()

    @property
    def has_room(self) -> bool:
        """Whether nothing is owed."""
        return self._rate is None or self._filled(self._rate) >= 0

    @property
    def is_open(self) -> bool:
        """Whether nothing is owed and nobody is in line."""
        return self._rate is None or (not self.waiting and self.has_room)

    def take(self, size: int) -> None:
        """Let bytes through; a negative number gives some back."""
        if self._rate is not None:
            self._level = self._filled(self._rate) - size
            self._clip(self._rate)

    def change(self, rate: float | None) -> None:
        """Set another rate, or None: from then on nothing is limited, and nobody waits."""
        if self._rate is not None:
            self._level = self._filled(self._rate)
        self._rate = rate
        if rate is not None:
            self._clip(rate)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait, first come, first served, until nothing is owed. The one whose turn it is takes and does not wait."""
        began_s = self._clock.monotonic_s()
        self.waiting += 1
        try:
            async with self._line:
                while self._rate is not None and not self.has_room:
                    await self._clock.sleep(max(pause_min_s, min(look_s, -self._level / self._rate)))
                self.waited_s += self._clock.monotonic_s() - began_s
                yield
        finally:
            self.waiting -= 1

    def _filled(self, rate: float) -> float:
        """The level at this moment."""
        now_s = self._clock.monotonic_s()
        self._level = min(rate * burst_s, self._level + (now_s - self._at_s) * rate)
        self._at_s = now_s
        return self._level

    def _clip(self, rate: float) -> None:
        self._level = min(max(self._level, -rate * debt_max_s), rate * burst_s)
