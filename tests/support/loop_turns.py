"""Counts the turns that the event loop gives to others while something works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTurns:
    """``count`` grows with each turn."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextmanager
def counted_turns() -> Iterator[LoopTurns]:
    """Counts in a task of its own until the end of the block."""
    turns = LoopTurns()
    task = asyncio.ensure_future(turns.take())
    try:
        yield turns
    finally:
        task.cancel()
