"""The keys of all tables stay within one budget of memory: the longest unused tables are read again when asked for."""

from __future__ import annotations

import random

import pytest

from segment_service.contracts.table_store import TableEntry, TableKey
from segment_service.tables import paged_index
from segment_service.tables.key_index import InlineBudget, KeyIndex, key_memory_bytes
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.removed_keys import removed_key_memory_bytes
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps

key = b"k" * 50
keys_per_table = 20
table_bytes = keys_per_table * (key_memory_bytes + len(key) + 3)


def entries(table: int) -> list[TableEntry]:
    return [TableEntry(key + b"%03d" % number, b"%d" % table) for number in range(keys_per_table)]


async def filled(tables: TableExtension, numbers: range) -> list[str]:
    names = [f"scope/table-{number}" for number in numbers]
    for number, name in zip(numbers, names, strict=True):
        await tables.create_table(name)
        await tables.put(name, entries(number))
        await tables.get(name, [key])
    return names


async def test_the_longest_unused_tables_are_forgotten_and_read_again() -> None:
    tables = TableExtension(InMemorySegmentStore(), key_bytes_max=3 * table_bytes)
    names = await filled(tables, range(3))
    assert (tables.key_bytes, tables.forgotten_total) == (3 * table_bytes, 0)
    await tables.get(names[0], [key])
    names += await filled(tables, range(3, 4))
    assert (tables.key_bytes, tables.forgotten_total) == (3 * table_bytes, 1)
    assert names[1] not in tables._tables, "the longest unused one"  # private: nothing else tells
    for number, name in enumerate(names):
        found = await tables.get(name, [entry.key for entry in entries(number)])
        assert [bytes(entry.value) for entry in found] == [b"%d" % number] * keys_per_table
        assert tables.key_bytes <= 3 * table_bytes
    assert tables.forgotten_total > 1
    for name in names:
        await tables.delete_table(name, must_be_empty=False)
    assert tables.key_bytes == 0


async def test_one_table_may_be_larger_than_the_budget() -> None:
    tables = TableExtension(InMemorySegmentStore(), key_bytes_max=1)
    (name,) = await filled(tables, range(1))
    assert tables.forgotten_total == 0
    assert len(await tables.get(name, [entry.key for entry in entries(0)])) == keys_per_table


def test_a_key_counts_while_it_is_known() -> None:
    index = KeyIndex(lambda one: one, InlineBudget())
    rng, live, removed = random.Random(1), set[bytes](), set[bytes]()
    for offset in range(500):
        one = b"k" * rng.randint(1, 9)
        if rng.random() < 0.6:
            index.put(one, b"value", offset, offset)
            live.add(one)
            removed.discard(one)
        else:
            index.remove(one)
            if one in live:
                live.remove(one)
                removed.add(one)
        assert index.memory_bytes == sum(key_memory_bytes + len(one) for one in live) + sum(
            removed_key_memory_bytes + len(one) for one in removed
        )
    index.clear()
    assert index.memory_bytes == 0


async def test_what_an_index_in_tier_2_has_in_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segment_service.tables.paging.keys_in_memory_max", 5)
    monkeypatch.setattr(paged_index, "flush_keys", 10)
    monkeypatch.setattr(paged_index, "cached_keys_max", 8)
    maps = await TableMaps().open()
    store = InMemorySegmentStore()
    tables = TableExtension(store, maps=maps)
    (name,) = await filled(tables, range(1))
    rng = random.Random(2)
    for _ in range(100):
        some = [TableKey(entry.key) for entry in rng.sample(entries(0), 3)]
        if rng.random() < 0.5:
            await tables.remove(name, some)
        else:
            await tables.put(name, [TableEntry(one.key, b"v") for one in some])
        await maps.settled()
        await tables.get(name, [some[0].key])
        index = tables._tables[name].index  # private: nothing else tells
        assert isinstance(index, PagedKeyIndex)
        layers = [*index._changed, *index._flushing, *index._cached]
        assert index._cached_bytes == sum(map(len, index._cached))
        assert index.memory_bytes >= len(layers) * key_memory_bytes
        assert tables.key_bytes == index.memory_bytes
