"""Frees reference cycles by time, where Python's collector comes by the number of objects alone."""

from __future__ import annotations

import gc
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service

period_s: Final = 10.0
"""Pause between two collections."""


class CycleCollector(Service):
    """Collects the youngest generation from time to time, and the next one when its own threshold says so.

    A process that has raised the thresholds of the collector may hold tens of thousands of objects in cycles, and what
    they refer to: errors that are held by frames of their own tracebacks above all, with the requests and buffers of
    those frames. A collection costs what was made since the last one and lives, which the first threshold limits.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__("cycle-collector")
        self._clock = clock

    async def on_start(self) -> None:
        self.spawn(self._run(), "collect")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(period_s)
            is_second_due = gc.get_count()[1] > gc.get_threshold()[1]
            gc.collect(1 if is_second_due else 0)
