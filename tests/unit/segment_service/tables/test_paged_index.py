"""Tables whose index is in Tier 2: what a restart reads, what memory holds, what contradicts the log, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound, TableNotEmpty, Unavailable
from pravega_common.runtime.failpoints import arm, disarm_all, raise_on_hit
from segment_service.container.table_maps import MARKED
from segment_service.contracts.attributes import TABLE_INDEX_IN_TIER2
from segment_service.contracts.segment_store import ReadResult, SegmentStore
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry, TableKey
from segment_service.sorted_runs.sorted_run_map import MANIFEST_STORED, RUN_STORED
from segment_service.tables import log_reader, paged_index, paging, table_extension, table_segment
from segment_service.tables.index_entry import decode_entry
from segment_service.tables.key_index import KeyIndex, Slot
from segment_service.tables.log_reader import read_log
from segment_service.tables.paged_index import FLUSHED, PagedKeyIndex
from segment_service.tables.paging import ATTRIBUTE_SET
from segment_service.tables.table_extension import TableExtension
from segment_service.tables.table_segment import TableSegment
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_maps import TableMaps

T = "scope/table"
count = 600


class CountingStore(InMemorySegmentStore):
    """Counts the bytes that are read."""

    bytes_read = 0

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        result = await super().read(segment, offset, length_max)
        self.bytes_read += result.length
        return result


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(paging, "keys_in_memory_max", 100)
    monkeypatch.setattr(paged_index, "flush_keys", 50)
    monkeypatch.setattr(paged_index, "cached_keys_max", 60)
    yield
    disarm_all()


def key(number: int) -> bytes:
    return b"key-%04d" % number


async def fill(tables: TableExtension, maps: TableMaps) -> None:
    await tables.create_table(T)
    for first in range(0, count, 20):
        await tables.put(T, [TableEntry(key(number), b"%d" % number) for number in range(first, first + 20)])
        await maps.settled()


def index_of(tables: TableExtension) -> PagedKeyIndex:
    index = tables._tables[T].index
    assert isinstance(index, PagedKeyIndex)
    return index


async def everything(tables: TableExtension) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    page = await tables.iterate(T, 37)
    while page.entries:
        found |= {entry.key: entry.value for entry in page.entries}
        page = await tables.iterate(T, 37, page.continuation)
    return found


async def test_a_small_table_stays_in_memory() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await tables.create_table(T)
    await tables.put(T, [TableEntry(key(number), b"v") for number in range(100)])
    assert TABLE_INDEX_IN_TIER2 not in (await store.get_info(T)).attributes
    assert not await maps.runs.map_names("")


async def test_a_restart_reads_the_tail_of_the_log_and_memory_holds_a_part() -> None:
    store, maps = CountingStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    index = index_of(tables)
    assert len(index._cached) + len(index._changed) < 200
    length = (await store.get_info(T)).length
    store.bytes_read = 0
    again = TableExtension(store, maps=await maps.open())
    assert (await again.table_info(T)).entry_count == count
    assert store.bytes_read == length - index_of(again).covered < length / 5
    [first, absent] = await again.get(T, [key(0), b"absent"])
    assert (first.value, absent.version) == (b"0", NOT_EXISTS)
    await again.put(T, [TableEntry(key(0), b"now", first.version)])
    assert await everything(again) == {key(number): b"%d" % number for number in range(count)} | {key(0): b"now"}


async def test_a_table_that_an_older_program_wrote_is_brought_to_tier2() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    await fill(TableExtension(store), maps)
    tables = TableExtension(store, maps=maps)
    await tables.put(T, [TableEntry(b"one more", b"")])
    assert len(await everything(tables)) == count + 1
    assert len(index_of(tables)) == count + 1


async def test_the_first_read_of_a_large_table_never_holds_all_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full collection of the interpreter's garbage stops the loop for 0.3 us for each key that lives; giving up an
    index with a million keys takes 160 ms."""
    monkeypatch.setattr(log_reader, "records_per_turn", 10)
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    await fill(TableExtension(store), maps)
    most, put = 0, KeyIndex.put

    def counted_put(self: KeyIndex, key: bytes, value: bytes | memoryview, version: int, offset: int) -> None:
        nonlocal most
        put(self, key, value, version, offset)
        most = max(most, len(self))

    monkeypatch.setattr(KeyIndex, "put", counted_put)
    tables = TableExtension(store, maps=maps)
    assert (await tables.table_info(T)).entry_count == count
    assert 100 < most <= 110
    assert len(await everything(tables)) == len(index_of(tables)) == count


async def test_a_large_table_is_read_into_memory_if_its_segment_cannot_be_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    await fill(TableExtension(store), maps)
    attempts = 0

    async def refused(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise Unavailable("not now")

    tables = TableExtension(store, maps=maps)
    with monkeypatch.context() as patch:
        patch.setattr(store, "update_attributes", refused)
        await tables.put(T, [TableEntry(b"one more", b"")])
        assert 1 <= attempts < 25
        assert len(await everything(tables)) == count + 1
    for number in range(100):
        await tables.put(T, [TableEntry(b"more-%d" % number, b"")])
    assert len(index_of(tables)) == count + 101


async def test_a_large_request_gives_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the entries that are decoded between two turns of the loop, with all blocks in memory."""
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    assert len(await everything(tables)) == count  # all blocks are in memory from now on
    monkeypatch.setattr(paged_index, "keys_per_turn", 20)
    in_turn = most = 0

    def counted_decode(data: bytes, table: str) -> tuple[bytes, Slot]:
        nonlocal in_turn, most
        in_turn += 1
        most = max(most, in_turn)
        return decode_entry(data, table)

    async def turns() -> None:
        nonlocal in_turn
        while True:
            in_turn = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(paged_index, "decode_entry", counted_decode)
    watching = asyncio.create_task(turns())
    assert len((await tables.iterate(T, count)).entries) == count
    assert 0 < most <= 40
    most = 0
    assert len(await tables.get(T, [key(number) for number in range(count)])) == count
    assert 0 < most <= 40
    watching.cancel()


@pytest.mark.parametrize("point", [ATTRIBUTE_SET, MARKED, RUN_STORED, MANIFEST_STORED, FLUSHED])
@pytest.mark.parametrize("hit", [1, 3])
async def test_a_crash_at_any_point_loses_nothing_and_counts_right(point: str, hit: int) -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    arm(point, raise_on_hit(point, hit))
    await fill(TableExtension(store, maps=maps), maps)
    disarm_all()
    for _ in range(2):
        tables = TableExtension(store, maps=await maps.open())
        await tables.remove(T, [TableKey(key(number)) for number in range(7)])
        await tables.put(T, [TableEntry(key(number), b"%d" % number) for number in range(7)])
        assert (await tables.table_info(T)).entry_count == count
        assert await everything(tables) == {key(number): b"%d" % number for number in range(count)}


async def test_an_index_of_another_log_is_made_anew() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    await fill(TableExtension(store, maps=maps), maps)
    maps.identity = b"a restored log's"
    tables = TableExtension(store, maps=await maps.open())
    await tables.remove(T, [TableKey(key(0))])
    assert (await tables.table_info(T)).entry_count == count - 1
    assert len(await everything(tables)) == count - 1


async def test_an_index_that_lies_below_the_log_is_made_anew() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    for _ in range(2):  # by a program that knows of no index in Tier 2
        other = TableExtension(store)
        await other.put(T, [TableEntry(key(number), b"again") for number in range(count)])
    await store.truncate(T, (await store.get_info(T)).length - count * 30)
    tables = TableExtension(store, maps=await maps.open())
    assert (await tables.table_info(T)).start_offset > 0
    assert await everything(tables) == dict.fromkeys(map(key, range(count)), b"again")


async def test_an_index_that_is_ahead_of_the_log_is_data_corruption() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    await fill(TableExtension(store, maps=maps), maps)
    info = await store.get_info(T)
    behind = InMemorySegmentStore()
    await TableExtension(behind).create_table(T)
    index = TableExtension(behind, maps=await maps.open())._pager
    assert index is not None
    with pytest.raises(DataCorruption, match="the log lost what was acknowledged"):
        await index.make_index(T, info.segment_id, lambda one: one).load(0, 10)


async def test_the_compactor_keeps_what_the_map_does_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_segment, "compaction_bytes_min", 2_000)
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    for round_ in range(20):
        await tables.put(T, [TableEntry(key(number), b"%d" % round_) for number in range(200)])
        assert (await store.get_info(T)).start_offset <= index_of(tables).covered
        await maps.settled()
    info = await store.get_info(T)
    assert info.start_offset > 0
    assert info.length - info.start_offset < 3 * count * 40
    expected = {key(number): b"19" if number < 200 else b"%d" % number for number in range(count)}
    assert await everything(tables) == expected
    assert await everything(TableExtension(store, maps=await maps.open())) == expected
    assert await everything(TableExtension(store)) == expected, "the log alone has everything, too"


async def test_updates_are_refused_while_tier2_is_away_and_too_much_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paged_index, "changed_keys_max", 100)
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)

    def away() -> None:
        raise Unavailable("Tier 2 is away")

    arm(MARKED, away)
    with pytest.raises(Unavailable):
        for number in range(20):
            await tables.put(T, [TableEntry(b"new-%d-%d" % (number, one), b"") for one in range(20)])
    assert len(index_of(tables)._changed) < 150
    disarm_all()
    await tables.put(T, [TableEntry(b"new", b"")])


async def test_the_map_goes_with_its_segment() -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    info = await store.get_info(T)
    await tables.delete_table(T, must_be_empty=False)
    assert await maps.runs.map_names("keys-")
    await maps.open()
    maps.segments = {info.segment_id}
    assert await maps.maps.sweep() == 0
    maps.segments = set()
    assert await maps.maps.sweep() == 1
    await maps.storage.garbage.collect()
    await maps.storage.garbage.collect()
    assert not await maps.runs.map_names("")
    with pytest.raises(SegmentNotFound):
        await tables.get(T, [key(0)])


async def test_an_index_is_loaded_after_the_flush_of_one_that_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    await tables.put(T, [TableEntry(b"new-%d" % number, b"") for number in range(30)])
    forgotten, flush, may_flush = index_of(tables), maps.table_map(T, 1).flush, asyncio.Event()

    async def late_flush(changes: Mapping[bytes, bytes | None]) -> None:
        await may_flush.wait()
        await flush(changes)

    async def late_read_log(
        store: SegmentStore, table: TableSegment, length: int, should_stop: Callable[[], bool]
    ) -> None:
        may_flush.set()
        await asyncio.wait([flushing])
        await read_log(store, table, length, should_stop)

    maps.table_map(T, 1).flush = late_flush  # type: ignore[method-assign]
    length = tables._tables[T].indexed_to
    flushing = asyncio.create_task(forgotten.flush(lambda: length))
    await asyncio.sleep(0)
    tables._forget(tables._tables[T])
    monkeypatch.setattr(table_extension, "read_log", late_read_log)
    asking = asyncio.create_task(tables.table_info(T))
    for _ in range(100):
        await asyncio.sleep(0)
    may_flush.set()
    await flushing
    assert (await asking).entry_count == count + 30
    assert len(await everything(tables)) == count + 30


@pytest.mark.parametrize("is_marked", [True, False])
async def test_a_table_that_grows_while_it_is_deleted_if_empty_is_not_empty(
    is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again with one key too many for memory, and forgotten if its segment can be marked."""
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await tables.create_table(T)
    await tables.put(T, [TableEntry(key(number), b"") for number in range(100)])
    if not is_marked:

        async def refused(*_: object) -> None:
            raise Unavailable("not now")

        monkeypatch.setattr(store, "update_attributes", refused)
    put = asyncio.create_task(tables.put(T, [TableEntry(b"one more", b"")]))
    await asyncio.sleep(0)  # it is on its way
    with pytest.raises(TableNotEmpty):
        await tables.delete_table(T, must_be_empty=True)
    await put
    assert len(await everything(tables)) == 101
    await tables.remove(T, [TableKey(b"one more"), *(TableKey(key(number)) for number in range(100))])
    await tables.delete_table(T, must_be_empty=True)
    with pytest.raises(SegmentNotFound):
        await tables.delete_table(T, must_be_empty=True)


async def test_a_page_of_changes_is_empty_only_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader stops there: what moved to the tail while the log was read would not be known to it."""
    store, maps = InMemorySegmentStore(), await TableMaps().open()
    tables = TableExtension(store, maps=maps)
    await fill(tables, maps)
    tables = TableExtension(store, maps=maps)
    position = (await tables.table_info(T)).length
    await tables.put(T, [TableEntry(key(number), b"before") for number in range(5)])
    find, is_moved = PagedKeyIndex.find, asyncio.Event()

    async def find_late(index: PagedKeyIndex, keys: list[bytes]) -> dict[bytes, Slot] | None:
        if not is_moved.is_set():
            is_moved.set()
            await tables.put(T, [TableEntry(key(number), b"after") for number in range(5)])
        return await find(index, keys)

    monkeypatch.setattr(PagedKeyIndex, "find", find_late)
    page = await tables.delta(T, position, 100)
    assert [entry.key for entry in page.entries] == [key(number) for number in range(5)]
    assert (await tables.delta(T, page.last_position, 100)).entries == ()
