"""Counters that many writers raise by conditional puts, over a store whose appends fail before or after they are
done: no raise is lost, none counts twice, and what every reader sees only grows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import BadKeyVersion, ContainerOffline, UnknownOutcome
from segment_service.contracts.attributes import AttributeUpdate
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps
from tests.unit.segment_service.storage.world import YieldingClock

T = "scope/table"
KEYS = (b"a", b"b", b"c")
INDEX_LIMITS = {
    "paging.keys_in_memory_max": (0, 1),
    "paged_index.flush_keys": (1, 2),
    "paged_index.changed_keys_max": (2, 100),
    "paged_index.cached_keys_max": (1, 100),
    "paged_index.keys_per_turn": (1, 500),
    "key_index.value_inline_bytes_max": (0, 4096),
}


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


async def run(seed: int, maps_of: Callable[[random.Random], TableMaps | None]) -> None:
    rng = random.Random(seed)
    store = UnreliableStore(rng)
    maps = maps_of(rng)

    async def next_owner() -> TableExtension:
        if maps is not None:
            await maps.open()
        return TableExtension(store, maps=maps)

    owner = await next_owner()
    await owner.create_table(T)
    done, unknown = dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0)

    async def writer() -> None:
        seen = dict.fromkeys(KEYS, 0)
        for _ in range(15):
            key = rng.choice(KEYS)
            before = max(seen[key], done[key])
            if rng.random() < 0.3:
                page = await owner.iterate(T, 10)
                listed = {entry.key: entry for entry in page.entries}
                now = listed.get(key, TableEntry(key, b"", NOT_EXISTS))
            else:
                [now] = await owner.get(T, [key])
            count = int(now.value or b"0")
            assert count >= before, "a reader went back in time"
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
        owner = await next_owner()
    for tables in (owner, await next_owner()):
        counts: dict[bytes, int] = {}
        for entry in await tables.get(T, KEYS):
            count = counts[entry.key] = int(entry.value or b"0")
            assert done[entry.key] <= count <= done[entry.key] + unknown[entry.key]
        assert (await tables.table_info(T)).entry_count == sum(count > 0 for count in counts.values())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_counters_count_every_acknowledged_raise_once(seed: int) -> None:
    asyncio.run(run(seed, lambda rng: None))


def slow_maps(rng: random.Random) -> TableMaps:
    """Maps in a Tier 2 whose answers come in any order, and without a cache."""
    clock = YieldingClock(rng)
    chunks = FaultyChunkStorage(InMemoryChunkStorage(), rng, clock, FaultRates(delay_max_s=1.0))
    return TableMaps(chunks, clock, cache_bytes=0)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_so_do_counters_in_a_table_whose_index_is_in_tier2(seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, values in INDEX_LIMITS.items():
            patch.setattr(f"segment_service.tables.{name}", rng.choice(values))
        asyncio.run(run(seed, slow_maps))
