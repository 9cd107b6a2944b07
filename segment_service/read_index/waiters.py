"""Keeps the readers that wait at the end of one segment."""

from __future__ import annotations

import asyncio


class TailWaiters:
    """Waits without expiry. A waiter that is cancelled leaves nothing behind."""

    def __init__(self) -> None:
        self._offsets: dict[asyncio.Future[None], int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    async def wait(self, offset: int) -> None:
        """Return once ``wake`` saw a byte at ``offset``, or ``wake_all`` was called; the caller looks what happened."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offsets[waiter] = offset
        try:
            await waiter
        finally:
            self._offsets.pop(waiter, None)

    def wake(self, length: int) -> None:
        """There are bytes up to ``length`` now."""
        for waiter, offset in self._offsets.items():
            if offset < length and not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        for waiter in self._offsets:
            if not waiter.done():
                waiter.set_result(None)
