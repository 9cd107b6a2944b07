"""Counters that many writers raise by conditional puts, over a store whose appends fail before or after they are
done: no raise is lost, none counts twice, and what every reader sees only grows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import BadKeyVersion, ContainerOffline, UnknownOutcome
from segment_service.contracts.attributes import AttributeUpdate
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.table_store import TableEntry
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore

T = "scope/table"
KEYS = (b"a", b"b", b"c")


class UnreliableStore(InMemorySegmentStore):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        fate = self.rng.random()
        if fate > 0.1:
            return super().append(segment, data, updates, expected_offset=expected_offset)
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if fate > 0.05:
            failed.set_exception(ContainerOffline("nothing was done"))
            return failed
        done = super().append(segment, data, updates, expected_offset=expected_offset)
        done.add_done_callback(lambda _: done.exception())
        asyncio.get_running_loop().call_soon(failed.set_exception, UnknownOutcome("the ack was lost"))
        return failed


async def run(seed: int) -> None:
    rng = random.Random(seed)
    store = UnreliableStore(rng)
    owner = TableExtension(store)
    await owner.create_table(T)
    done, unknown = dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0)

    async def writer() -> None:
        seen = dict.fromkeys(KEYS, 0)
        for _ in range(15):
            key = rng.choice(KEYS)
            [now] = await owner.get(T, [key])
            count = int(now.value or b"0")
            assert count >= seen[key], "a reader went back in time"
            seen[key] = count
            try:
                await owner.put(T, [TableEntry(key, b"%d" % (count + 1), now.version)])
                done[key] += 1
            except UnknownOutcome:
                unknown[key] += 1
            except (BadKeyVersion, ContainerOffline):
                await asyncio.sleep(0)

    for _ in range(2):
        await asyncio.gather(*(writer() for _ in range(12)))
        owner = TableExtension(store)
    for tables in (owner, TableExtension(store)):
        for entry in await tables.get(T, KEYS):
            count = int(entry.value or b"0")
            assert done[entry.key] <= count <= done[entry.key] + unknown[entry.key]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_counters_count_every_acknowledged_raise_once(seed: int) -> None:
    asyncio.run(run(seed))
