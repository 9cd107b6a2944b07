"""Measures how late the event loop of a process runs what is due."""

from __future__ import annotations

from collections import deque
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.latency import LatencyCounts
from pravega_common.services.problems import Problem

period_s: Final = 0.1
"""Pause between two looks."""
late_max_s: Final = 1.0
"""How late the loop may have been in the last seconds before its service says so."""
stuck_s: Final = 15.0
"""How late the loop must have been for the process to count as hung."""
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

    @property
    def is_stuck(self) -> bool:
        """Whether the process is not worth keeping: its loop does not turn."""
        return self.recent_max_s >= stuck_s

    def problem(self, service: str, remedy: str) -> Problem | None:
        """The problem of a service of this name whose loop was late; ``None`` when it was not."""
        late_s = self.recent_max_s
        if late_s <= late_max_s:
            return None
        text = f"the {service}'s loop was {late_s:.1f} s late in the last seconds"
        return Problem("loop-late", text, remedy, stops_work=False)

    async def on_start(self) -> None:
        self.spawn(self._run(), "look")

    async def _run(self) -> None:
        while True:
            before_s = self._clock.monotonic_s()
            await self._clock.sleep(period_s)
            late_s = max(self._clock.monotonic_s() - before_s - period_s, 0.0)
            self._recent.append(late_s)
            self.counts.note(late_s)
