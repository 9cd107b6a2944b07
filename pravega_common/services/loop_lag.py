"""Measures how late the event loop of a process runs what is due."""

from __future__ import annotations

from collections import deque
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.latency import LatencyCounts

period_s: Final = 0.1
"""Pause between two looks."""
looks_kept: Final = 100
"""Looks that ``recent_max_s`` is about: those of the last ten seconds."""


class LoopLag(Service):
    """Sleeps, and looks how much later than asked it wakes up."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("loop-lag")
        self._clock = clock
        self._recent: deque[float] = deque(maxlen=looks_kept)
        self.counts = LatencyCounts()

    @property
    def recent_max_s(self) -> float:
        """The longest that something was late in the last seconds."""
        return max(self._recent, default=0.0)

    async def on_start(self) -> None:
        self.spawn(self._run(), "look")

    async def _run(self) -> None:
        while True:
            before_s = self._clock.monotonic_s()
            await self._clock.sleep(period_s)
            late_s = max(self._clock.monotonic_s() - before_s - period_s, 0.0)
            self._recent.append(late_s)
            self.counts.note(late_s)
