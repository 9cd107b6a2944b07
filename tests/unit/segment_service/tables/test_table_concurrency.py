"""Updates that meet each other, fail, or meet another writer of the same table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pravega_common.errors import BadKeyVersion, ContainerOffline, SegmentNotFound, TableNotEmpty, UnknownOutcome
from segment_service.contracts.attributes import AttributeUpdate
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry, TableKey
from segment_service.tables.entry_serializer import serialize_put
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore

T = "scope/table"


class FaultyStore(InMemorySegmentStore):
    """Fails the next append: before it is done, or after (``is_written``)."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.is_written = False

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        failure, self.failure = self.failure, None
        if failure is None:
            return super().append(segment, data, updates, expected_offset=expected_offset)
        if self.is_written:
            super().append(segment, data, updates, expected_offset=expected_offset)
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failed.set_exception, failure)
        return failed


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_exactly_one_of_many_conditional_updates_wins() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    version = NOT_EXISTS
    for round_ in range(20):
        entries = [TableEntry(b"key", b"%d-%d" % (round_, writer), version) for writer in range(20)]
        results = await asyncio.gather(*(tables.put(T, [entry]) for entry in entries), return_exceptions=True)
        winners = [index for index, result in enumerate(results) if isinstance(result, list)]
        assert len(winners) == 1
        assert all(isinstance(result, BadKeyVersion) for result in results if not isinstance(result, list))
        [now] = await tables.get(T, [b"key"])
        assert now.value == entries[winners[0]].value
        version = now.version


async def test_updates_of_different_keys_do_not_wait_for_each_other() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    store.hold()
    puts = [asyncio.create_task(tables.put(T, [TableEntry(b"%d" % n, b"v", NOT_EXISTS)])) for n in range(8)]
    await settle()
    assert store.queued_operations == 8
    assert (await tables.get(T, [b"0"]))[0].version == NOT_EXISTS, "not durable, not visible"
    store.release()
    assert [await done for done in puts] == [[19 * n] for n in range(8)]


async def test_owners_in_turn_find_each_others_updates() -> None:
    store = InMemorySegmentStore()
    one, other = TableExtension(store), TableExtension(store)
    await one.create_table(T)
    for round_ in range(10):
        owner, next_owner = (one, other) if round_ % 2 else (other, one)
        [now] = await owner.get(T, [b"key"])
        puts = [owner.put(T, [TableEntry(b"key", b"%d" % round_, now.version)]) for _ in range(3)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        assert sum(isinstance(result, list) for result in results) == 1
        with pytest.raises(BadKeyVersion):
            await next_owner.put(T, [TableEntry(b"key", b"late", now.version)])
    assert (await one.iterate(T, 100)).entries == (await other.iterate(T, 100)).entries


async def test_a_failed_update_spoils_nothing_behind_it() -> None:
    store = FaultyStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    store.failure = ContainerOffline("not now")
    results = await asyncio.gather(
        tables.put(T, [TableEntry(b"a", b"1", NOT_EXISTS)]),
        tables.put(T, [TableEntry(b"b", b"2", NOT_EXISTS)]),
        tables.put(T, [TableEntry(b"a", b"3", NOT_EXISTS)]),
        return_exceptions=True,
    )
    assert isinstance(results[0], ContainerOffline)
    assert isinstance(results[1], list) and isinstance(results[2], list)
    assert [entry.value for entry in await tables.get(T, [b"a", b"b"])] == [b"3", b"2"]


async def test_an_unknown_outcome_is_resolved_by_reading_the_log() -> None:
    store = FaultyStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    store.failure, store.is_written = UnknownOutcome("lost its ack"), True
    with pytest.raises(UnknownOutcome):
        await tables.put(T, [TableEntry(b"a", b"1", NOT_EXISTS)])
    await settle()
    with pytest.raises(BadKeyVersion):
        await tables.put(T, [TableEntry(b"a", b"2", NOT_EXISTS)])
    assert (await tables.get(T, [b"a"]))[0].value == b"1"


async def test_a_cancelled_caller_leaves_its_update_on_its_way() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    store.hold()
    caller = asyncio.create_task(tables.put(T, [TableEntry(b"a", b"1")]))
    await settle()
    caller.cancel()
    rival = asyncio.create_task(tables.put(T, [TableEntry(b"a", b"2", NOT_EXISTS)]))
    await settle()
    assert not rival.done()
    store.release()
    with pytest.raises(BadKeyVersion):
        await rival
    assert (await tables.get(T, [b"a"]))[0].value == b"1"


async def test_a_put_that_meets_a_delete_is_never_lost_silently() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    store.hold()
    update = asyncio.create_task(tables.put(T, [TableEntry(b"a", b"1")]))
    await settle()
    deletion = asyncio.create_task(tables.delete_table(T, must_be_empty=True))
    await settle()
    late = asyncio.create_task(tables.remove(T, [TableKey(b"a")]))
    await settle()
    store.release()
    with pytest.raises(TableNotEmpty):
        await deletion
    await update
    await late
    await tables.delete_table(T, must_be_empty=True)
    with pytest.raises(SegmentNotFound):
        await tables.get(T, [b"a"])


async def test_a_table_that_was_recreated_elsewhere_is_read_again() -> None:
    store = InMemorySegmentStore()
    one, other = TableExtension(store), TableExtension(store)
    await one.create_table(T)
    await one.put(T, [TableEntry(b"a", b"old")])
    await other.delete_table(T, must_be_empty=False)
    await other.create_table(T)
    await other.put(T, [TableEntry(b"b", b"new")])
    assert [entry.value for entry in await one.get(T, [b"a", b"b"])] == [b"", b"new"]
    assert one._budget.bytes_used == other._budget.bytes_used  # private: memory is shown by nothing else


async def test_a_table_that_was_deleted_elsewhere_gives_its_memory_back() -> None:
    store = InMemorySegmentStore()
    one, other = TableExtension(store), TableExtension(store)
    await one.create_table(T)
    await one.put(T, [TableEntry(b"a", b"value")])
    await other.delete_table(T, must_be_empty=False)
    with pytest.raises(SegmentNotFound):
        await one.get(T, [b"a"])
    assert (one._budget.bytes_used, one._tables) == (0, {})  # private: memory is shown by nothing else


async def test_big_values_are_read_from_the_segment_and_the_log_in_pieces() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    values = {b"%d" % number: bytes([number]) * (700_000 + number) for number in range(8)}
    for key, value in values.items():
        await tables.put(T, [TableEntry(key, value)])
    assert tables._budget.bytes_used == 0  # private: memory is shown by nothing else
    again = TableExtension(store)
    assert [entry.value for entry in await again.get(T, list(values))] == list(values.values())
    page = await again.iterate(T, 100)
    assert len(page.entries) == 3, "a page ends once it has 2 MiB"


async def test_a_half_record_at_the_end_of_the_log_is_corruption() -> None:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    await store.append(T, [serialize_put(b"key", b"value")[:-1]])
    with pytest.raises(Exception, match="never ends"):
        await tables.get(T, [b"key"])
