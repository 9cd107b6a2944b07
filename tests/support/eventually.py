"""Waiting for a state that has no event of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

wait_max_s = 20.0
poll_s = 0.002


async def eventually(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; ``TimeoutError`` if it does not within ``wait_max_s``."""
    async with asyncio.timeout(wait_max_s):
        while not condition():  # noqa: ASYNC110 - states of the code under test that it has no reason to signal
            await asyncio.sleep(poll_s)
