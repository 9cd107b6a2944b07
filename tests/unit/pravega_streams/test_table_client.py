"""Runs the table client over the wire: versions, conditions, pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import BadKeyVersion, InvalidArgument, SegmentNotFound
from pravega_common.model.table_limits import read_keys_max, update_entries_max, value_bytes_max
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import NO_VERSION, NOT_EXISTS, TableClient, TableItem
from tests.unit.pravega_streams.conftest import ScriptedResolver

TABLE = "_system/_tables/things"


@pytest.fixture
async def tables(endpoint: Endpoint) -> AsyncIterator[TableClient]:
    client = RawClient(ScriptedResolver(endpoint))
    made = TableClient(client)
    assert await made.create(TABLE)
    yield made
    client.close()


async def test_a_conditional_put_has_one_winner(tables: TableClient) -> None:
    assert not await tables.create(TABLE)
    (first,) = await tables.put(TABLE, [TableItem(b"k", b"one", NOT_EXISTS)])
    with pytest.raises(BadKeyVersion):
        await tables.put(TABLE, [TableItem(b"k", b"two", NOT_EXISTS)])
    (second,) = await tables.put(TABLE, [TableItem(b"k", b"two", first)])
    assert second > first
    assert await tables.get(TABLE, [b"k", b"absent"]) == [
        TableItem(b"k", b"two", second),
        TableItem(b"absent", b"", NOT_EXISTS),
    ]


async def test_a_refused_batch_writes_nothing(tables: TableClient) -> None:
    await tables.put(TABLE, [TableItem(b"a", b"1", NO_VERSION)])
    with pytest.raises(BadKeyVersion):
        await tables.put(TABLE, [TableItem(b"b", b"2", NO_VERSION), TableItem(b"a", b"3", NOT_EXISTS)])
    assert [item.version for item in await tables.get(TABLE, [b"b"])] == [NOT_EXISTS]


async def test_pages_give_every_live_key_once(tables: TableClient) -> None:
    await tables.put(TABLE, [TableItem(b"%d" % number, b"v", NO_VERSION) for number in range(100)])
    await tables.remove(TABLE, [(b"7", NO_VERSION)])
    found: list[bytes] = []
    token = b""
    while True:
        items, token = await tables.page(TABLE, token, 30)
        if not items:
            break
        found += [item.key for item in items]
    assert sorted(found) == sorted(b"%d" % number for number in range(100) if number != 7)


async def test_a_deleted_table_is_gone(tables: TableClient) -> None:
    assert await tables.delete(TABLE)
    assert not await tables.delete(TABLE)
    with pytest.raises(SegmentNotFound):
        await tables.get(TABLE, [b"k"])


async def test_reads_of_many_and_of_large_values_are_several_requests(tables: TableClient) -> None:
    large = [TableItem(b"large-%d" % number, b"x" * value_bytes_max, NO_VERSION) for number in range(20)]
    for item in large:
        await tables.put(TABLE, [item])
    found = await tables.get(TABLE, [item.key for item in large])
    assert [(item.key, len(item.value)) for item in found] == [(item.key, value_bytes_max) for item in large]
    keys = [b"%d" % number for number in range(2 * read_keys_max + 1)]
    await tables.put(TABLE, [TableItem(key, key, NO_VERSION) for key in keys])
    found = await tables.get(TABLE, [*keys, b"large-0", *keys])
    assert [item.key for item in found] == [*keys, b"large-0", *keys]
    assert await tables.get(TABLE, []) == []


async def test_an_unconditional_removal_may_be_several_requests(tables: TableClient) -> None:
    keys = [b"%d" % number for number in range(update_entries_max + 10)]
    for start in range(0, len(keys), 5_000):
        await tables.put(TABLE, [TableItem(key, b"", NO_VERSION) for key in keys[start : start + 5_000]])
    with pytest.raises(InvalidArgument, match="the limits"):
        await tables.remove(TABLE, [(keys[0], 7), *((key, NO_VERSION) for key in keys)])
    await tables.remove(TABLE, [(key, NO_VERSION) for key in keys])
    assert await tables.page(TABLE, b"", 10) == ([], b"")


async def test_what_no_request_can_hold_is_refused_before_it_is_sent(tables: TableClient) -> None:
    for item in (TableItem(b"", b"v", NO_VERSION), TableItem(b"k", b"x" * (value_bytes_max + 1), NO_VERSION)):
        with pytest.raises(InvalidArgument):
            await tables.put(TABLE, [item])
    with pytest.raises(InvalidArgument, match="the limits"):
        await tables.put(TABLE, [TableItem(b"%d" % number, b"x" * value_bytes_max, NO_VERSION) for number in range(17)])
    with pytest.raises(InvalidArgument):
        await tables.get(TABLE, [b""])
