"""Since when calls to Tier 2 fail, while others are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from segment_service.contracts.buffer import Buffer
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.measured_chunks import MeasuredChunkStorage
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock


class Hanging(InMemoryChunkStorage):
    """Lets puts wait, and fail when they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.puts = 0

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        self.puts += 1
        await self.released.wait()
        raise UnknownOutcome("no answer within 30 s")


async def test_a_call_that_others_outlived_does_not_say_that_all_failed() -> None:
    """A put without an answer for 30 s, beside reads that were served, said that all calls had failed for 30 s."""
    inner, clock = Hanging(), ManualClock()
    tier2 = MeasuredChunkStorage(inner, clock)
    put = asyncio.ensure_future(tier2.put("one", [b"1"]))
    await eventually(lambda: inner.puts == 1, "a put under way")
    await clock.advance(29.0)
    assert [info async for info in tier2.list("")] == []
    await clock.advance(1.0)
    inner.released.set()
    with pytest.raises(UnknownOutcome):
        await put
    assert tier2.failing_s == 1.0
    await clock.advance(4.0)
    assert tier2.failing_s == 5.0


async def test_calls_fail_since_the_first_of_them_began() -> None:
    inner, clock = Hanging(), ManualClock()
    tier2 = MeasuredChunkStorage(inner, clock)
    await clock.advance(100.0)
    puts = [asyncio.ensure_future(tier2.put(name, [b"1"])) for name in ("one", "two")]
    await eventually(lambda: inner.puts == 2, "puts under way")
    await clock.advance(30.0)
    inner.released.set()
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(error, UnknownOutcome) for error in ended)
    assert tier2.failing_s == 30.0


async def test_a_deletion_that_others_outlived_does_not_say_that_all_failed() -> None:
    class Slow(InMemoryChunkStorage):
        async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
            await clock.advance(28.0)
            await tier2.info("there")
            await clock.advance(2.0)
            return dict.fromkeys(names, Unavailable("away"))

    inner, clock = Slow(), ManualClock()
    tier2 = MeasuredChunkStorage(inner, clock)
    await inner.put("there", [b"1"])
    assert await tier2.delete_all(["one"])
    assert tier2.failing_s == 2.0
