"""The bucket of a scope: its rate over time, bursts, debts, the line of those who wait, and changes."""

from __future__ import annotations

import asyncio

import pytest

from segment_service.quotas.byte_bucket import ByteBucket, burst_s, debt_max_s
from tests.support.transaction_world import VirtualClock

RATE = 1_000.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def bucket(clock: VirtualClock) -> ByteBucket:
    return ByteBucket(RATE, clock)


class Taker:
    """Takes one size again and again, each time in its turn."""

    def __init__(self, bucket: ByteBucket, size: int) -> None:
        self.bytes = 0
        self.task = asyncio.ensure_future(self._run(bucket, size))

    async def _run(self, bucket: ByteBucket, size: int) -> None:
        while True:
            async with bucket.turn():
                bucket.take(size)
                self.bytes += size
            await asyncio.sleep(0)


@pytest.mark.parametrize("size", [7, 100, 2_500])
async def test_the_rate_is_held_whatever_the_sizes(clock: VirtualClock, bucket: ByteBucket, size: int) -> None:
    taker = Taker(bucket, size)
    await clock.pass_time(100)
    taker.task.cancel()
    assert 100 * RATE - size <= taker.bytes <= (100 + burst_s) * RATE + size


async def test_a_second_of_bytes_may_come_at_once(clock: VirtualClock, bucket: ByteBucket) -> None:
    await clock.pass_time(3_600)
    bucket.take(1_000)
    assert bucket.is_open
    bucket.take(1)
    assert not bucket.is_open
    await clock.pass_time(0.001)
    assert bucket.is_open


async def test_what_is_larger_than_the_bucket_is_paid_for_afterwards(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(11_000)
    await clock.pass_time(9.9)
    assert not bucket.is_open
    await clock.pass_time(0.2)
    assert bucket.is_open


async def test_a_debt_has_an_end(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(1_000_000_000)
    await clock.pass_time(debt_max_s)
    assert bucket.is_open


async def test_those_who_wait_take_turns(clock: VirtualClock, bucket: ByteBucket) -> None:
    takers = [Taker(bucket, 500) for _ in range(4)]
    await clock.pass_time(60)
    for taker in takers:
        taker.task.cancel()
    assert max(taker.bytes for taker in takers) - min(taker.bytes for taker in takers) <= 500


async def test_nobody_passes_those_in_line(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(2_000)
    taker = Taker(bucket, 10_000)
    await clock.pass_time(0.1)
    assert bucket.waiting == 1 and not bucket.is_open
    await clock.pass_time(1)
    assert taker.bytes == 10_000
    taker.task.cancel()
    await clock.pass_time(0.01)
    assert bucket.waiting == 0


async def test_who_gives_up_leaves_the_line(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(10_000)
    takers = [Taker(bucket, 10) for _ in range(3)]
    await clock.pass_time(0.1)
    takers[0].task.cancel()
    takers[1].task.cancel()
    await clock.pass_time(10)
    assert takers[2].bytes > 0 and (takers[0].bytes, takers[1].bytes) == (0, 0)
    takers[2].task.cancel()


async def test_another_rate_holds_at_once_also_for_who_waits(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(41_000)
    taker = Taker(bucket, 100)
    await clock.pass_time(1)
    bucket.change(39_000.0)
    await clock.pass_time(1.6)
    assert taker.bytes > 0
    before = taker.bytes
    await clock.pass_time(10)
    assert taker.bytes - before == pytest.approx(390_000, rel=0.01)
    taker.task.cancel()


async def test_without_a_limit_nobody_waits(clock: VirtualClock, bucket: ByteBucket) -> None:
    bucket.take(60_000)
    done = []

    async def wait() -> None:
        async with bucket.turn():
            done.append(True)

    tasks = [asyncio.ensure_future(wait()) for _ in range(3)]
    await clock.pass_time(1)
    assert not done
    bucket.change(None)
    await clock.pass_time(0.5)
    assert len(done) == 3 and bucket.is_open
    await asyncio.gather(*tasks)
    assert 3 * 1.0 <= bucket.waited_s <= 3 * 1.6
