"""Counts what calls of the controller cost: requests to tables and to segments, and milliseconds on memory fakes.

``python -m tests.bench.controller_calls`` prints a table for streams of 1, 8, 64 and 1,000 segments.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.support.fakes.segment_access import InMemorySegmentAccess
from tests.support.transaction_world import CrashSwitch, Instance, World

WIDTHS: Final = (1, 8, 64, 1_000)
S: Final = "scope"


class Counting(CrashSwitch):
    """Counts the calls of an instance by the method's name; a list of segments counts as that many requests."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: Counter[str] = Counter()
        self.segments: Counter[str] = Counter()

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(work.__self__, InMemorySegmentAccess):
            many = args[0] if work.__name__ in ("create_segments", "seal_segments", "delete_segments") else [0]
            self.segments[work.__name__] += len(many)
        else:
            self.tables[work.__name__] += 1
        return await work(*args, **kwargs)


@dataclass(frozen=True)
class Cost:
    """``tables`` and ``segments`` are requests, ``milliseconds`` those of the processor with everything in memory."""

    name: str
    tables: Counter[str]
    segments: Counter[str]
    milliseconds: float


class Measured:
    def __init__(self) -> None:
        self.switch = Counting()
        self.world = World()
        self.costs: list[Cost] = []

    async def start(self) -> Instance:
        await self.world.streams.create_system_tables()
        await self.world.streams.create_scope(S)
        one = await self.world.instance(self.switch)
        await self.world.clock.pass_time(1)
        # The reservation of ids and the first table of completed transactions are the day's, not the call's.
        await self.run(one.create.create(S, "warm", StreamConfiguration(ScalingPolicy.fixed(1))))
        created = await self.run(one.transactions.create(S, "warm", 30_000))
        await self.run(one.transactions.commit(S, "warm", created.id))
        await self.world.clock.pass_time(1)
        return one

    async def run(self, work: Awaitable[Any]) -> Any:
        return await self.world.run(work)

    async def measure(self, name: str, work: Callable[[], Awaitable[Any]], settle_s: float = 0.0) -> Any:
        self.switch.tables.clear()
        self.switch.segments.clear()
        start_s = time.perf_counter()
        answer = await self.run(work())
        if settle_s:
            await self.world.clock.pass_time(settle_s)
        spent_ms = 1_000 * (time.perf_counter() - start_s)
        self.costs.append(Cost(name, Counter(self.switch.tables), Counter(self.switch.segments), spent_ms))
        return answer


async def costs_of(width: int) -> list[Cost]:
    """Create a stream, then begin and commit a transaction, each the second of its kind."""
    measured = Measured()
    one = await measured.start()
    configuration = StreamConfiguration(ScalingPolicy.fixed(width))
    await measured.measure("create stream", lambda: one.create.create(S, "stream", configuration))
    for name in ("", "begin and commit"):
        created = await measured.measure("begin", lambda: one.transactions.create(S, "stream", 30_000))
        measured.world.write(S, "stream", created, "event")
        await measured.measure("commit", partial(one.transactions.commit, S, "stream", created.id), 0.3)
        if not name:
            del measured.costs[1:]
    await measured.world.close()
    return measured.costs


async def main() -> None:
    print("| segments | call | table requests | segment requests | ms |\n|---|---|---|---|---|")
    for width in WIDTHS:
        for cost in await costs_of(width):
            requests = f"{cost.tables.total()} | {cost.segments.total()}"
            print(f"| {width:,} | {cost.name} | {requests} | {cost.milliseconds:.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
