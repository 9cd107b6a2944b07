"""Bounds bytes in order, also when waiting requests are cancelled."""

from __future__ import annotations

import asyncio

from pravega_common.runtime.byte_gate import ByteGate


async def hold(gate: ByteGate, count: int, until: asyncio.Event, entered: list[int]) -> None:
    async with gate.of(count):
        entered.append(count)
        await until.wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_bytes_pass_in_order_up_to_the_limit() -> None:
    gate, first, rest, entered = ByteGate(10), asyncio.Event(), asyncio.Event(), list[int]()
    tasks = [asyncio.create_task(hold(gate, 8, first, entered))]
    await turns()
    tasks += [asyncio.create_task(hold(gate, count, rest, entered)) for count in (3, 1, 0)]
    await turns()
    assert entered == [8, 0], "the third waits behind the second, and no bytes never wait"
    first.set()
    await turns()
    assert entered == [8, 0, 3, 1]
    rest.set()
    await asyncio.gather(*tasks)
    assert gate.bytes_inside == 0


async def test_one_request_may_exceed_the_limit_alone() -> None:
    gate, until, entered = ByteGate(10), asyncio.Event(), list[int]()
    tasks = [asyncio.create_task(hold(gate, count, until, entered)) for count in (30, 1)]
    await turns()
    assert entered == [30]
    until.set()
    await asyncio.gather(*tasks)
    assert entered == [30, 1]


async def test_a_cancelled_request_leaves_its_place() -> None:
    gate, until, entered = ByteGate(10), asyncio.Event(), list[int]()
    tasks = [asyncio.create_task(hold(gate, count, until, entered)) for count in (10, 9, 2)]
    await turns()
    tasks[1].cancel()
    until.set()
    await turns()
    # Cancelled between being let in and running on:
    last = asyncio.create_task(hold(gate, 10, until, entered))
    await asyncio.gather(*tasks, last, return_exceptions=True)
    assert entered == [10, 2, 10]
    assert gate.bytes_inside == 0


async def test_cancelled_just_as_it_is_let_in() -> None:
    gate, until, entered = ByteGate(10), asyncio.Event(), list[int]()
    first, second = (asyncio.create_task(hold(gate, 10, until, entered)) for _ in range(2))
    await turns()
    until.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert gate.bytes_inside == 0
