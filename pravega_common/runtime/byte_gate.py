"""Bounds the bytes that requests fetch at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pravega_common.invariants import check


class ByteGate:
    """Requests pass while the bytes inside stay below a limit, else they wait in order; one request may exceed it."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_inside = 0
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def has_room(self, count: int) -> bool:
        """Whether ``count`` bytes would pass now."""
        return not self._waiting and self._fits(count)

    @asynccontextmanager
    async def of(self, count: int) -> AsyncIterator[None]:
        """Hold ``count`` bytes; no bytes never wait."""
        if count:
            await self._enter(count)
        try:
            yield
        finally:
            self._leave(count)

    async def _enter(self, count: int) -> None:
        if self.has_room(count):
            self.bytes_inside += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(count)
            raise

    def _fits(self, count: int) -> bool:
        return not self.bytes_inside or self.bytes_inside + count <= self._bytes_max

    def _leave(self, count: int) -> None:
        self.bytes_inside -= count
        check(self.bytes_inside >= 0, "more bytes left the gate than entered", count=count)
        while self._waiting:
            waiting_bytes, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if not self._fits(waiting_bytes):
                return
            self._waiting.popleft()
            self.bytes_inside += waiting_bytes
            turn.set_result(None)
