"""Tests that joined work has ended before its error is raised."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.runtime.joined import all_ended, both_ended, each_ended
from tests.support.held_errors import no_held_errors


async def test_results_come_in_the_order_of_the_work() -> None:
    async def after(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert await all_ended(after(turns) for turns in (3, 1, 2)) == [3, 1, 2]
    assert await all_ended(()) == []


async def test_an_error_that_is_a_result_is_not_raised() -> None:
    found = ValueError("found")

    async def told() -> ValueError:
        return found

    assert await all_ended([told(), told()]) == [found, found]


async def test_all_are_cancelled_together() -> None:
    cancelled = []

    async def endless(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    work = asyncio.ensure_future(all_ended(endless(number) for number in range(3)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert sorted(cancelled) == [0, 1, 2]


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


async def test_so_many_are_in_flight_at_a_time() -> None:
    running, most = 0, 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return 2 * number

    assert await each_ended(double, range(10), at_once=4) == [2 * number for number in range(10)]
    assert (running, most) == (0, 4)
    assert await each_ended(double, [], at_once=4) == []


async def test_nothing_begins_after_an_error() -> None:
    began, ended = [], []

    async def one(number: int) -> None:
        began.append(number)
        for _ in range(number):
            await asyncio.sleep(0)
        if number == 2:
            raise ValueError("work 2")
        ended.append(number)

    with pytest.raises(ValueError, match="work 2"):
        await each_ended(one, [5, 2, 1, 9], at_once=2)
    assert (began, ended) == ([5, 2], [5])


async def test_two_of_different_kinds() -> None:
    async def number() -> int:
        return 1

    async def text() -> str:
        return "a"

    async def broken() -> str:
        raise ValueError("broken")

    assert await both_ended(number(), text()) == (1, "a")
    with pytest.raises(ValueError, match="broken"):
        await both_ended(number(), broken())


async def test_errors_do_not_hold_the_work() -> None:
    async def fail(number: int) -> None:
        raise ValueError(f"work {number}")

    with no_held_errors():
        with pytest.raises(ValueError, match="work 0"):
            await all_ended(fail(number) for number in range(3))
        with pytest.raises(ValueError, match="work 1"):
            await both_ended(fail(1), fail(2))
        with pytest.raises(ValueError, match="work 0"):
            await each_ended(fail, range(3), at_once=2)
