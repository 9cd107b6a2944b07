"""Tests that joined work has ended before its error is raised."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.runtime.joined import all_ended


async def test_results_come_in_the_order_of_the_work() -> None:
    async def after(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert await all_ended(after(turns) for turns in (3, 1, 2)) == [3, 1, 2]
    assert await all_ended(()) == []


async def test_the_first_error_waits_for_the_rest() -> None:
    ended = []

    async def one(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        ended.append(number)
        if number in (2, 5):
            raise ValueError(f"work {number}")

    with pytest.raises(ValueError, match="work 5"):
        await all_ended(one(number) for number in (5, 2, 9, 1))
    assert ended == [1, 2, 5, 9]
