"""Asks Tier 2 for an object while nobody else does, so that an idle store notices that it is gone."""

from __future__ import annotations

import contextlib
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from segment_service.storage.measured_chunks import MeasuredChunkStorage

idle_max_s: Final = 10.0
"""How long Tier 2 may be left alone before it is asked; also the pause between two looks."""
PROBED: Final = "health/probe"
"""The name that is asked for. No object has it, which is an answer as good as another."""


class Tier2Probe(Service):
    """Makes a call when there was none for a while, so that ``failing_s`` stays true."""

    def __init__(self, tier2: MeasuredChunkStorage, clock: Clock) -> None:
        super().__init__("tier2-probe")
        self._tier2 = tier2
        self._clock = clock

    async def on_start(self) -> None:
        self.spawn(self._run(), "probe")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(idle_max_s)
            if self._clock.monotonic_s() - self._tier2.ended_s >= idle_max_s or self._tier2.failing_s:
                with contextlib.suppress(PravegaError):  # noted by the storage itself
                    await self._tier2.info(PROBED)
