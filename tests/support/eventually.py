"""Waits for a state that has no event of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

wait_max_s = 20.0
poll_s = 0.002
blocking_poll_s = 0.02
"""A condition of a blocking test asks a server, a file or ``/proc``: not every two milliseconds."""


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], what: str = "the condition", wait_max_s: float = wait_max_s
) -> None:
    """Returns once the condition holds; ``TimeoutError`` with ``what`` if it does not within ``wait_max_s``.

    A condition may assert, and so end a wait that has become pointless.
    """
    limit = asyncio.timeout(wait_max_s)
    try:
        async with limit:
            while not await _holds(condition):  # noqa: ASYNC110 - the code under test has no reason to signal it
                await asyncio.sleep(poll_s)
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"{what} did not come about within {wait_max_s:.0f} s") from error
        raise


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer


def eventually_blocking(
    condition: Callable[[], bool], what: str = "the condition", wait_max_s: float = wait_max_s
) -> None:
    """The same for a test without an event loop."""
    deadline_s = time.monotonic() + wait_max_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come about within {wait_max_s:.0f} s")
        time.sleep(blocking_poll_s)
