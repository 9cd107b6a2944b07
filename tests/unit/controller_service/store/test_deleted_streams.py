"""Names of deleted streams: bounded records, numbers that never go back, records of former versions."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.store import deleted_streams
from controller_service.store.deleted_streams import (
    DELETED_STREAMS_TABLE,
    DeletedNames,
    shard_count,
)
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import DeletedStream
from controller_service.store.serializer import encode
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ABSENT
from pravega_common.names import scoped_name
from pravega_common.runtime.clock import SystemClock

S = "scope"


async def made() -> StreamStore:
    ids = itertools.count()
    store = StreamStore(InMemoryVersionedStore(), SystemClock(), lambda: f"id{next(ids)}", "one")
    await store.create_system_tables()
    return store


async def records_of(store: StreamStore) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    token = b""
    while True:
        page = await store.tables.scan(DELETED_STREAMS_TABLE, token)
        found.update({key: value.value for key, value in page.entries})
        token = page.continuation
        if not token:
            return found


async def test_the_records_do_not_grow_with_the_names_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_streams, "shard_count", 4)
    monkeypatch.setattr(deleted_streams, "names_per_shard_max", 16)
    store = await made()
    for number in range(1_000):
        await store.record_deleted(S, f"stream-{number}", 1)
    records = await records_of(store)
    assert len(records) == 4
    assert max(map(len, records.values())) < 16 * 64
    for number in range(1_000):
        assert await store.first_segment_number(S, f"stream-{number}") == 1


async def test_a_name_that_was_never_used_begins_at_nought_while_few_were_deleted() -> None:
    store = await made()
    for number in range(shard_count):
        await store.record_deleted(S, f"stream-{number}", 7)
    assert await store.first_segment_number(S, "another") == 0
    assert await store.first_segment_number(S, "stream-1") == 7


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 50)), max_size=60))
def test_no_name_ever_begins_below_a_number_that_it_used(deletions: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deleted_streams, "names_per_shard_max", 3)
        shard, used = DeletedNames(), defaultdict[str, int](int)
        for name, number in ((f"s/{name}", number) for name, number in deletions):
            before = {known: shard.first_number(known) for known in used}
            shard = shard.with_name(name, number)
            used[name] = max(used[name], number)
            assert len(shard.numbers) <= 3
            assert all(shard.first_number(known) >= value for known, value in used.items())
            assert all(shard.first_number(known) >= value for known, value in before.items())


async def test_deletions_of_one_shard_at_once_all_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_streams, "shard_count", 1)
    store = await made()
    await asyncio.gather(*(store.record_deleted(S, f"stream-{number}", 3 + number) for number in range(12)))
    assert [await store.first_segment_number(S, f"stream-{number}") for number in range(12)] == list(range(3, 15))


async def test_a_record_of_a_former_version_counts_and_goes_with_the_next_deletion() -> None:
    store = await made()
    name = scoped_name(S, "old")
    await store.tables.put(DELETED_STREAMS_TABLE, name, encode(DeletedStream(41)), ABSENT)
    assert await store.first_segment_number(S, "old") == 41
    await store.record_deleted(S, "old", 40)
    assert await store.first_segment_number(S, "old") == 41
    assert name not in await records_of(store)
