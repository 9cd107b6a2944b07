"""Provides time as a constructor argument, so that a test can own it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from pravega_common.runtime.system_time import system_time_ms


class Clock(Protocol):
    """The only source of time in the services.

    ``monotonic_s`` never goes back and is what leases and deadlines use; ``wall_ms`` is the time of day in
    milliseconds since 1970 and is only ever stored, shown, or compared with what was stored.
    """

    def monotonic_s(self) -> float: ...

    def wall_ms(self) -> int: ...

    def is_right(self) -> bool:
        """Whether the time of day is one by which things may be deleted for their age."""
        ...

    async def sleep(self, delay_s: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return system_time_ms()

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
