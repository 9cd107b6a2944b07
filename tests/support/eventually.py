"""Waits for a state that has no event of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

wait_max_s = 20.0
pause_min_s = 0.002
pause_max_s = 0.05
Condition = Callable[[], bool | Awaitable[bool]]


async def eventually(condition: Condition, what: str = "the condition", wait_max_s: float = wait_max_s) -> None:
    """Returns once the condition holds; ``TimeoutError`` with ``what`` if it does not within ``wait_max_s``.

    A condition may assert, and so end a wait that has become pointless.
    """
    limit = asyncio.timeout(wait_max_s)
    pauses_s = _pauses_s()
    try:
        async with limit:
            while not await _holds(condition):  # noqa: ASYNC110 - the code under test has no reason to signal it
                await asyncio.sleep(next(pauses_s))
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"{what} did not come about within {wait_max_s:.0f} s") from error
        raise


def eventually_blocking(
    condition: Callable[[], bool], what: str = "the condition", wait_max_s: float = wait_max_s
) -> None:
    """The same for a test without an event loop."""
    deadline_s = time.monotonic() + wait_max_s
    pauses_s = _pauses_s()
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come about within {wait_max_s:.0f} s")
        time.sleep(next(pauses_s))


async def _holds(condition: Condition) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer


def _pauses_s() -> Iterator[float]:
    """Short at first, for a state of this process, and longer for one that a server is asked about."""
    pause_s = pause_min_s
    while True:
        yield pause_s
        pause_s = min(pause_s * 1.2, pause_max_s)
