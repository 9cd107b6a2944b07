"""Frees reference cycles by time, where Python's collector comes by the number of objects alone."""

from __future__ import annotations

import gc
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service

period_s: Final = 10.0
"""Pause between two collections."""
full_periods_min: Final = 6
"""Periods between two collections of everything: each stops the process for some 0.3 s a million objects."""

_YOUNGEST, _MIDDLE, _ALL = range(3)


class CycleCollector(Service):
    """Collects the youngest generation from time to time, the next one when its own threshold says so, and everything
    after something was dropped that was old.

    A process that has raised the thresholds of the collector may hold tens of thousands of objects in cycles, and what
    they refer to: errors that are held by frames of their own tracebacks above all, with the requests and buffers of
    those frames. A collection of the youngest costs what was made since the last one and lives, which the first
    threshold limits. What lived long, such as a container, is in a generation that is nearly never looked through.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__("cycle-collector")
        self._clock = clock
        self._is_full_due = False
        self._periods_since_full = full_periods_min

    def note_dropped(self) -> None:
        """Something large that lived long is not needed any more."""
        self._is_full_due = True

    async def on_start(self) -> None:
        self.spawn(self._run(), "collect")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(period_s)
            gc.collect(self._next_generation())

    def _next_generation(self) -> int:
        self._periods_since_full += 1
        if self._is_full_due and self._periods_since_full >= full_periods_min:
            self._is_full_due, self._periods_since_full = False, 0
            return _ALL
        return _MIDDLE if gc.get_count()[_MIDDLE] > gc.get_threshold()[_MIDDLE] else _YOUNGEST
