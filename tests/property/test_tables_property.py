"""Tables against a dictionary with versions: any updates, conditional or not, from one or two owners in turn."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import BadKeyVersion, KeyNotFound
from segment_service.contracts.table_store import NO_VERSION, NOT_EXISTS, TableEntry, TableKey
from segment_service.tables import table_segment
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore

T = "scope/table"
KEYS = [b"%02d" % number for number in range(12)]


class Model:
    def __init__(self, rng: random.Random, key_length: int) -> None:
        self.rng = rng
        self.key_length = key_length
        self.live: dict[bytes, tuple[bytes, int]] = {}
        self.used: set[int] = set()
        self.last_version = -1

    def version_of(self, key: bytes) -> int:
        return self.live[key][1] if key in self.live else NOT_EXISTS

    def condition(self, key: bytes) -> int:
        """Mostly right, sometimes none, sometimes wrong."""
        wrong = self.rng.choice((NOT_EXISTS, self.rng.randint(0, 5_000)))
        return self.rng.choice((NO_VERSION, NO_VERSION, self.version_of(key), self.version_of(key), wrong))

    def holds(self, keys: list[TableKey]) -> bool:
        return all(key.version in (NO_VERSION, self.version_of(key.key)) for key in keys)

    async def update(self, tables: TableExtension) -> None:
        keys = [self.rng.choice(KEYS) for _ in range(self.rng.randint(1, 4))]
        wanted = [TableKey(key, self.condition(key)) for key in keys]
        entries = [TableEntry(key.key, self.rng.randbytes(self.rng.choice((0, 5, 60))), key.version) for key in wanted]
        is_put = self.rng.random() < 0.7
        if not self.holds(wanted):
            with pytest.raises((BadKeyVersion, KeyNotFound)):
                await (tables.put(T, entries) if is_put else tables.remove(T, wanted))
            return
        if not is_put:
            await tables.remove(T, wanted)
            for key in keys:
                self.live.pop(key, None)
            return
        versions = await tables.put(T, entries)
        assert versions == sorted(set(versions)) and versions[0] > self.last_version
        self.last_version = versions[-1]
        for entry, version in zip(entries, versions, strict=True):
            self.live[entry.key] = (entry.value, version)

    async def check(self, tables: TableExtension) -> None:
        found = await tables.get(T, KEYS)
        for key, entry in zip(KEYS, found, strict=True):
            assert (entry.value, entry.version) == self.live.get(key, (b"", NOT_EXISTS))
        iterated = await self.iterate(tables, self.rng.randint(1, 5))
        assert {entry.key: (entry.value, entry.version) for entry in iterated} == self.live
        assert len(iterated) == len(self.live)
        info = await tables.table_info(T)
        assert info.entry_count == len(self.live)
        if not self.key_length:
            await self.check_delta(tables, info.length)

    async def iterate(self, tables: TableExtension, page: int) -> list[TableEntry]:
        entries: list[TableEntry] = []
        continuation, first = b"", b""
        while True:
            found = await tables.iterate(T, page, continuation, first)
            if not found.entries:
                return entries
            entries.extend(found.entries)
            if self.key_length:
                assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)
                first = (int.from_bytes(entries[-1].key, "big") + 1).to_bytes(self.key_length, "big")
            else:
                continuation = found.continuation

    async def check_delta(self, tables: TableExtension, length: int) -> None:
        page, position = self.rng.randint(1, 5), 0
        state: dict[bytes, tuple[bytes, int]] = {}
        while True:
            found = await tables.delta(T, position, page)
            if not found.entries:
                break
            assert len(found.entries) <= page
            state.update({entry.key: (entry.value, entry.version) for entry in found.entries})
            position = found.last_position
            assert found.reached_end == (position == length)
        assert state == self.live


async def run(seed: int, key_length: int, inline_bytes: int) -> None:
    rng = random.Random(seed)
    store = InMemorySegmentStore()
    owners = [TableExtension(store, inline_bytes) for _ in range(2)]
    await owners[0].create_table(T, key_length)
    model = Model(rng, key_length)
    for _ in range(rng.randint(1, 80)):
        action = rng.random()
        if action < 0.05:
            owners[rng.randint(0, 1)] = TableExtension(store, inline_bytes)
        elif action < 0.1:
            await model.check(rng.choice(owners))
        await model.update(owners[0] if rng.random() < 0.8 else owners[1])
    for tables in [*owners, TableExtension(store, inline_bytes)]:
        await model.check(tables)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0, 2)), st.sampled_from((0, 100, 1_000_000)), st.booleans())
def test_tables_match_the_model(seed: int, key_length: int, inline_bytes: int, is_compacting: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_compacting:
            patch.setattr(table_segment, "compaction_bytes_min", 500)
        asyncio.run(run(seed, key_length, inline_bytes))
