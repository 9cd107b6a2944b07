"""Gives an event loop its turns during long work, by slices of time."""

from __future__ import annotations

import asyncio
from typing import Final

from pravega_common.runtime.clock import Clock

slice_s: Final = 0.01
"""Time for which long work keeps the loop."""


class TimeSlices:
    """Gives the loop a turn whenever a slice is used up: others share it."""

    def __init__(self, clock: Clock, steps_per_reading: int = 1) -> None:
        """``steps_per_reading``: steps between two looks at the clock, together far shorter than a slice."""
        self._clock = clock
        self._steps_per_reading = steps_per_reading
        self._steps = 0
        self._ends_s = clock.monotonic_s() + slice_s

    async def step(self) -> None:
        """A step of the work is done."""
        self._steps += 1
        if self._steps % self._steps_per_reading == 0 and self._clock.monotonic_s() >= self._ends_s:
            await asyncio.sleep(0)
            self._ends_s = self._clock.monotonic_s() + slice_s
