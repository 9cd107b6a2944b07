"""Tables whose index is in Tier 2 against a dictionary: crashes at every point, failovers, and a Tier 2 that fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import BadKeyVersion, Outcome, PravegaError
from pravega_common.runtime import failpoints
from segment_service.contracts.table_store import NO_VERSION, NOT_EXISTS, TableEntry, TableKey
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps
from tests.unit.segment_service.storage.world import YieldingClock

T = "scope/table"
Answer = TypeVar("Answer")
PREFIXES = ("sorted_runs.", "table_maps.", "tables.", "storage.mark.")
POINTS = sorted(name for name in failpoints.KNOWN if name.startswith(PREFIXES))
LIMITS = {
    "tables.paging.keys_in_memory_max": (0, 5),
    "tables.paged_index.flush_keys": (1, 4),
    "tables.paged_index.changed_keys_max": (2, 8),
    "tables.paged_index.changed_bytes_max": (300, 8 << 20),
    "tables.paged_index.cached_keys_max": (1, 6, 100),
    "tables.paged_index.keys_per_turn": (1, 3, 500),
    "tables.index_entry.value_stored_bytes_max": (10, 1024),
    "tables.key_index.value_inline_bytes_max": (0, 20, 4096),
    "tables.table_segment.compaction_bytes_min": (300, 1 << 20),
    "tables.compactor.compaction_copy_bytes_max": (50, 1 << 20),
    "tables.compactor.compaction_read_bytes_max": (200, 1 << 20),
    "tables.log_reader.log_read_bytes": (100, 1 << 20),
    "tables.log_reader.records_per_turn": (2, 500),
    "sorted_runs.run_writer.block_bytes": (120,),
    "sorted_runs.run_writer.file_bytes_max": (400,),
    "sorted_runs.merging.merged_runs_min": (2,),
}


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    failpoints.disarm_all()


class World:
    """A segment store that stays, owners of the table one after the other, and what the table must have."""

    def __init__(self, seed: int, key_length: int) -> None:
        self.rng = random.Random(seed)
        self.key_length = key_length
        self.keys = [b"%03d" % number for number in range(40)]
        self.clock = YieldingClock(self.rng)
        self.faults = self.rng.random() < 0.5
        self.chunks = FaultyChunkStorage(InMemoryChunkStorage(), self.rng, self.clock)
        self.store = InMemorySegmentStore()
        self.maps = TableMaps(self.chunks, self.clock)
        self.live: dict[bytes, tuple[bytes, int]] = {}

    async def open(self) -> None:
        """Another owner, as after a crash: the old one is not heard of again but for what it has on its way."""
        failpoints.disarm_all()
        self.chunks.rates = FaultRates()
        await self.maps.open()
        key_bytes_max = self.rng.choice((1_000, 1 << 20))
        self.tables = TableExtension(self.store, self.rng.choice((0, 100, 1 << 20)), self.maps, key_bytes_max)
        if self.faults:
            self.chunks.rates = FaultRates(unavailable=0.03, unknown_done=0.03, unknown_lost=0.03, unknown_late=0.02)

    async def update(self) -> None:
        count = self.rng.randint(1, 5)
        keys = self.rng.sample(self.keys, count)
        if self.rng.random() < 0.6:
            entries = [
                TableEntry(key, self.rng.randbytes(self.rng.choice((0, 5, 60))), self._version(key)) for key in keys
            ]
            versions = await self.certainly(lambda: self.tables.put(T, entries))
            for entry, version in zip(entries, versions, strict=True):
                self.live[entry.key] = entry.value, version
        else:
            await self.certainly(lambda: self.tables.remove(T, [TableKey(key, self._version(key)) for key in keys]))
            for key in keys:
                self.live.pop(key, None)

    def _version(self, key: bytes) -> int:
        return self.rng.choice((NO_VERSION, self.live.get(key, (b"", NOT_EXISTS))[1]))

    async def wrong_update(self) -> None:
        key = self.rng.choice(self.keys)
        wrong = 1 << 40 if key in self.live else NOT_EXISTS - 5
        with pytest.raises(PravegaError) as raised:
            await self.certainly(lambda: self.tables.put(T, [TableEntry(key, b"wrong", wrong)]))
        assert isinstance(raised.value, BadKeyVersion) or key not in self.live

    async def certainly(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of a call that fails only without effect, for this store loses nothing."""
        for attempt in range(200):
            if attempt == 50:
                self.chunks.rates = FaultRates()
            try:
                return await call()
            except PravegaError as error:
                if error.outcome is Outcome.REJECTED:
                    raise
                assert error.outcome is Outcome.FAILED, f"the log was not touched: {error!r}"
                if self.rng.random() < 0.3 and attempt < 50:
                    await self.open()
        raise AssertionError("no end")

    async def check(self) -> None:
        keys = self.rng.sample(self.keys, 10)
        for entry in await self.certainly(lambda: self.tables.get(T, keys)):
            assert (entry.value, entry.version) == self.live.get(entry.key, (b"", NOT_EXISTS))
        assert (await self.certainly(lambda: self.tables.table_info(T))).entry_count == len(self.live)
        iterated = await self._iterate(self.rng.randint(1, 50))
        assert [entry.key for entry in iterated] == self._order()
        assert {entry.key: (entry.value, entry.version) for entry in iterated} == self.live
        if not self.key_length:
            await self._check_delta()

    def _order(self) -> list[bytes]:
        table = self.tables._tables[T]
        return sorted(self.live, key=table.layout.order_key)

    async def _iterate(self, page: int) -> list[TableEntry]:
        entries: list[TableEntry] = []
        continuation, first = b"", b""
        while True:
            found = await self.certainly(lambda: self.tables.iterate(T, page, continuation, first))  # noqa: B023
            if not found.entries:
                return entries
            entries.extend(found.entries)
            if self.key_length:
                first = (int.from_bytes(entries[-1].key, "big") + 1).to_bytes(self.key_length, "big")
            else:
                continuation = found.continuation

    async def _check_delta(self) -> None:
        state: dict[bytes, tuple[bytes, int]] = {}
        position, page = 0, self.rng.randint(1, 50)
        while True:
            found = await self.certainly(lambda: self.tables.delta(T, position, page))  # noqa: B023
            if not found.entries:
                break
            state.update({entry.key: (entry.value, entry.version) for entry in found.entries})
            position = found.last_position
        assert state == self.live

    def check_totals(self) -> None:
        """Counted again, after every record, whatever was in memory."""
        index = self.tables._tables[T].index
        if isinstance(index, PagedKeyIndex):
            assert len(index) == len(self.live)
            assert index.changed_bytes >= 0
            assert index._inline_bytes >= 0


async def run(seed: int, key_length: int) -> int:
    world = World(seed, key_length)
    rng = world.rng
    await world.open()
    await world.tables.create_table(T, key_length)
    for _ in range(rng.randint(10, 120)):
        action = rng.random()
        if action < 0.05:
            await world.open()
        elif action < 0.15:
            await world.check()
        elif action < 0.2:
            await world.wrong_update()
        elif action < 0.25:
            failpoints.arm(point := rng.choice(POINTS), failpoints.raise_on_hit(point, rng.randint(1, 3)))
        elif action < 0.3:
            await world.maps.settled()
        elif action < 0.33:
            await world.chunks.land_late_puts()
        elif action < 0.36 and not world.faults:
            await world.maps.runs.merge_waiting()
        else:
            await world.update()
    world.faults = False
    await world.open()
    await world.check()
    world.check_totals()
    paged = isinstance(world.tables._tables[T].index, PagedKeyIndex)
    world.tables._tables[T].index.clear()
    assert world.tables._budget.bytes_used == 0
    return paged


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0, 3)))
def test_tables_match_the_model(seed: int, key_length: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, values in LIMITS.items():
            patch.setattr(f"segment_service.{name}", rng.choice(values))
        asyncio.run(run(seed, key_length))
    failpoints.disarm_all()
