"""Streams by tag: what a listing reads, tags that come and go under it, scopes of former versions."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import ScopeRecord
from controller_service.store.scope_store import SCOPES_TABLE, STREAMS_LIST, list_table_name
from controller_service.store.serializer import encode
from controller_service.store.stream_store import StreamStore
from controller_service.store.tag_index import TAGS_TABLE
from controller_service.store.versioned_store import ANY_VERSION
from pravega_common.errors import InvalidArgument, ScopeNotFound
from pravega_common.runtime.clock import SystemClock

S = "scope"


class CountingStore(InMemoryVersionedStore):
    """Counts reads by table; ``is_slow``: every call takes a random number of turns."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.is_slow = False
        self._random = random.Random(seed)

    async def _wait(self) -> None:
        for _ in range(self._random.randrange(6) if self.is_slow else 0):
            await asyncio.sleep(0)

    async def get_many(self, table: str, keys: Sequence[str]) -> Any:
        self.reads[table.partition("/")[2].partition(".#.")[0] or table] += len(keys)
        await self._wait()
        return await super().get_many(table, keys)

    async def put_many(self, table: str, puts: Any) -> list[int]:
        await self._wait()
        return await super().put_many(table, puts)

    async def scan(self, table: str, continuation: bytes = b"", count_max: int = 100) -> Any:
        page = await super().scan(table, continuation, count_max)
        self.reads[table.partition("/")[2].partition(".#.")[0] or table] += len(page.entries)
        return page


async def made(tables: InMemoryVersionedStore) -> StreamStore:
    numbers = itertools.count()
    store = StreamStore(tables, SystemClock(), lambda: f"id{next(numbers)}", "one")
    await store.create_system_tables()
    await store.create_scope(S)
    return store


@pytest.fixture
def tables() -> CountingStore:
    return CountingStore()


@pytest.fixture
async def store(tables: CountingStore) -> StreamStore:
    return await made(tables)


async def tagged(store: StreamStore, tag: str) -> list[str]:
    names, token = await store.list_streams_with_tag(S, tag)
    while token:
        assert names, "only the last page may be empty"
        more, token = await store.list_streams_with_tag(S, tag, token)
        names += more
    assert len(set(names)) == len(names)
    return sorted(names)


async def test_a_listing_reads_the_streams_of_its_tag_alone(store: StreamStore, tables: CountingStore) -> None:
    for number in range(2_000):
        await store.add_entry(S, f"s{number}", ("rare",) if number % 200 == 0 else ("often",))
    tables.reads.clear()
    assert await tagged(store, "rare") == sorted(f"s{number}" for number in range(0, 2_000, 200))
    assert tables.reads[STREAMS_LIST] == 10 and tables.reads[TAGS_TABLE] <= 16 + 10
    assert len(await tagged(store, "often")) == 1_990
    assert await tagged(store, "never") == []


async def test_pages_are_bounded(store: StreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller_service.store.stream_store.page_size", 3)
    for number in range(100):
        await store.add_entry(S, f"s{number}", ("a", "b"))
    names, token = await store.list_streams_with_tag(S, "a")
    assert len(names) == 3 and token
    assert len(await tagged(store, "a")) == 100
    with pytest.raises(InvalidArgument, match="no place"):
        await store.list_streams_with_tag(S, "a", b"x/y")


async def test_tags_come_and_go(store: StreamStore, tables: CountingStore) -> None:
    entry, _ = await store.add_entry(S, "s", ("a", "b"))
    await store.set_tags(S, "s", entry.stream_id, ("b", "c"))
    assert [await tagged(store, tag) for tag in "abc"] == [[], ["s"], ["s"]]
    await store.remove_stream(S, "s", entry.stream_id)
    assert [await tagged(store, tag) for tag in "abc"] == [[], [], []]
    scope = await store.scope(S)
    assert scope is not None
    index = list_table_name(S, scope.scope_id, TAGS_TABLE)
    assert (await tables.scan(index)).entries == ()
    await store.remove_scope(S, scope.scope_id)
    assert index not in tables._tables
    with pytest.raises(ScopeNotFound):
        await store.list_streams_with_tag(S, "a")
    with pytest.raises(ScopeNotFound):
        await store.list_streams_with_tag("", "a")


@pytest.mark.parametrize("seed", range(60))
async def test_no_stream_is_missing_whatever_happens_at_once(seed: int) -> None:
    """Tags are given and taken by two updates of each stream and by listings, which clean up, at the same time."""
    tables, chooser = CountingStore(seed), random.Random(seed)
    store = await made(tables)
    entries = {name: (await store.add_entry(S, name, ()))[0] for name in ("s1", "s2")}
    tables.is_slow = True

    async def update(name: str) -> None:
        for _ in range(6):
            tags = ("a",) if chooser.random() < 0.5 else ()
            await store.set_tags(S, name, entries[name].stream_id, tags)

    async def look() -> None:
        for _ in range(12):
            await tagged(store, "a")

    await asyncio.gather(*(update(name) for name in ("s1", "s1", "s2", "s2")), look(), look())
    wanted = [name for name in entries if (await entry_of(store, name)) == ("a",)]
    assert await tagged(store, "a") == wanted


class GatedStore(CountingStore):
    """Holds the write of a stream's entry, and a removal from the index, until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}

    def hold(self, name: str) -> None:
        self.gates[name] = (asyncio.Event(), asyncio.Event())

    async def _pass(self, name: str) -> None:
        if name in self.gates:
            reached, opened = self.gates[name]
            reached.set()
            await opened.wait()

    async def reached(self, name: str) -> None:
        await self.gates[name][0].wait()

    def let_go(self, name: str) -> None:
        self.gates[name][1].set()

    async def put_many(self, table: str, puts: Any) -> list[int]:
        if STREAMS_LIST in table:
            await self._pass("entry")
        return await super().put_many(table, puts)

    async def remove(self, table: str, key: str, expected: int = ANY_VERSION) -> None:
        if TAGS_TABLE in table:
            await self._pass("removal")
        await super().remove(table, key, expected)


async def test_a_listing_that_saw_the_entry_before_its_tag_removes_nothing() -> None:
    tables = GatedStore()
    store = await made(tables)
    entry, _ = await store.add_entry(S, "s", ())
    tables.hold("entry")
    tables.hold("removal")
    giving = asyncio.ensure_future(store.set_tags(S, "s", entry.stream_id, ("a",)))
    await tables.reached("entry")
    listing = asyncio.ensure_future(tagged(store, "a"))
    await tables.reached("removal")
    tables.let_go("entry")
    await giving
    tables.let_go("removal")
    assert await listing == []
    assert await tagged(store, "a") == ["s"]


async def entry_of(store: StreamStore, name: str) -> tuple[str, ...]:
    entry = await store.entry(S, name)
    assert entry is not None
    return entry.tags


async def test_a_scope_of_a_former_version_is_indexed_once(store: StreamStore, tables: CountingStore) -> None:
    for number in range(300):
        await store.add_entry(S, f"s{number}", ("a",) if number % 3 == 0 else ())
    scope = await store.scope(S)
    assert scope is not None
    await tables.delete_table(list_table_name(S, scope.scope_id, TAGS_TABLE))
    await tables.put(SCOPES_TABLE, S, encode(ScopeRecord(scope.scope_id, scope.created_ms)), ANY_VERSION)
    # A stream that is tagged before anybody asks.
    await store.add_entry(S, "new", ("a",))
    assert len(await tagged(store, "a")) == 101
    tables.reads.clear()
    assert len(await tagged(store, "a")) == 101
    assert tables.reads[STREAMS_LIST] == 101
