"""Joins concurrent work: an error is raised only when none of it is in flight any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_ended(work: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results in the order of the work once all has ended, or raises the first error in that order.

    A bare ``gather`` leaves the rest running behind an error, and its effects then come unawaited.
    """
    results = []
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
