"""Joins concurrent work: an error is raised only when none of it is in flight any more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def all_ended(work: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results in the order of the work once all has ended, or raises the first error in that order.

    A bare ``gather`` leaves the rest running behind an error, and its effects then come unawaited.
    """
    tasks = deque(asyncio.ensure_future(one) for one in work)
    del work  # an error has this frame, which must hold none of the tasks when it is raised
    await asyncio.gather(*tasks, return_exceptions=True)
    results = []
    while tasks:
        results.append(tasks.popleft().result())
    return results


async def each_ended(do: Callable[[A], Awaitable[T]], items: Sequence[A], *, at_once: int) -> list[T]:
    """Does it for each item, ``at_once`` at a time; returns the results in the order of the items.

    After an error nothing more begins, and it is raised once what had begun has ended.
    """
    results: dict[int, T] = {}
    waiting, has_failed = iter(enumerate(items)), False

    async def work() -> None:
        nonlocal has_failed
        for index, item in waiting:
            if has_failed:
                return
            try:
                results[index] = await do(item)
            except BaseException:
                has_failed = True
                raise

    await all_ended(work() for _ in range(min(at_once, len(items))))
    return [results[index] for index in range(len(items))]


async def both_ended(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """The same for two of different kinds."""
    left, right = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        await all_ended((left, right))
        return left.result(), right.result()
    finally:
        del left, right  # an error of theirs has this frame
