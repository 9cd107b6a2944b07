"""Says how every ``TableStore`` behaves (docs/wire-protocol.md 2.2 and 8.1)."""

from __future__ import annotations

import pytest

from pravega_common.errors import (
    BadKeyVersion,
    BadOffset,
    InvalidArgument,
    KeyNotFound,
    SegmentExists,
    SegmentNotFound,
    TableNotEmpty,
    UnsupportedOperation,
)
from pravega_common.model.table_limits import (
    entry_wire_bytes,
    key_bytes_max,
    page_entries_max,
    read_bytes_max,
    read_keys_max,
    update_entries_max,
    value_bytes_max,
)
from segment_service.contracts.table_store import (
    NO_VERSION,
    NOT_EXISTS,
    DeltaPage,
    TableEntry,
    TableKey,
    TableStore,
)

T = "scope/table"


def put(key: bytes, value: bytes = b"v", version: int = NO_VERSION) -> TableEntry:
    return TableEntry(key, value, version)


async def all_keys(tables: TableStore, page: int) -> list[bytes]:
    keys: list[bytes] = []
    continuation = b""
    while True:
        found = await tables.iterate(T, page, continuation)
        if not found.entries:
            assert found.continuation == b""
            return keys
        assert found.continuation, "entries without a token make a client begin again"
        keys += [entry.key for entry in found.entries]
        continuation = found.continuation


async def walk_delta(tables: TableStore, page: int, position: int = 0) -> list[DeltaPage]:
    """As the Rust client does: until the first empty page."""
    pages: list[DeltaPage] = []
    while True:
        found = await tables.delta(T, position, page)
        if not found.entries:
            return pages
        assert found.last_position > position
        pages.append(found)
        position = found.last_position


class TableStoreContract:
    """A subclass gives the fixture ``tables``."""

    async def test_versions_are_the_offsets_of_the_records(self, tables: TableStore) -> None:
        await tables.create_table(T)
        assert await tables.put(T, [put(b"a", b"12345"), put(b"bb", b"")]) == [0, 23]
        assert await tables.put(T, [put(b"a")]) == [42]
        await tables.remove(T, [TableKey(b"zzz")])
        info = await tables.table_info(T)
        assert (info.length, info.entry_count, info.key_length) == (42 + 19 + 20, 2, 0)
        assert await tables.get(T, [b"bb", b"x", b"a", b"bb"]) == [
            TableEntry(b"bb", b"", 23),
            TableEntry(b"x", b"", NOT_EXISTS),
            TableEntry(b"a", b"v", 42),
            TableEntry(b"bb", b"", 23),
        ]
        assert await tables.get(T, []) == []

    async def test_conditions_are_all_or_nothing(self, tables: TableStore) -> None:
        await tables.create_table(T)
        [version] = await tables.put(T, [put(b"a", b"1", NOT_EXISTS)])
        with pytest.raises(BadKeyVersion):
            await tables.put(T, [put(b"b", b"2", NOT_EXISTS), put(b"a", b"2", version + 1)])
        with pytest.raises(BadKeyVersion):
            await tables.put(T, [put(b"u"), put(b"a", b"2", NOT_EXISTS)])
        assert [entry.version for entry in await tables.get(T, [b"a", b"b", b"u"])] == [version, -1, -1]
        assert len(await tables.put(T, [put(b"a", b"2", version), put(b"b", b"2", NOT_EXISTS), put(b"u")])) == 3
        with pytest.raises(BadKeyVersion):
            await tables.remove(T, [TableKey(b"b"), TableKey(b"a", version)])
        [a, b] = await tables.get(T, [b"a", b"b"])
        await tables.remove(T, [TableKey(b"a", a.version), TableKey(b"b", b.version)])
        assert (await tables.table_info(T)).entry_count == 1

    async def test_a_concrete_version_of_a_key_that_never_was(self, tables: TableStore) -> None:
        await tables.create_table(T)
        with pytest.raises(KeyNotFound):
            await tables.put(T, [put(b"a", b"1", 0)])
        with pytest.raises(KeyNotFound):
            await tables.remove(T, [TableKey(b"a", 7)])
        await tables.put(T, [put(b"a", b"1", NOT_EXISTS)])
        await tables.remove(T, [TableKey(b"a", 0)])
        with pytest.raises((BadKeyVersion, KeyNotFound)):
            await tables.put(T, [put(b"a", b"1", 0)])

    async def test_fixed_keys_answer_a_mismatch_for_an_absent_key(self, tables: TableStore) -> None:
        await tables.create_table(T, key_length=2)
        with pytest.raises(BadKeyVersion):
            await tables.put(T, [put(b"aa", b"1", 0)])

    async def test_expected_length(self, tables: TableStore) -> None:
        await tables.create_table(T)
        await tables.put(T, [put(b"a")], expected_length=0)
        with pytest.raises(BadOffset) as bad:
            await tables.put(T, [put(b"a")], expected_length=0)
        assert (bad.value.expected_offset, bad.value.offset) == (19, 0)
        await tables.remove(T, [TableKey(b"a")], expected_length=19)

    async def test_limits(self, tables: TableStore) -> None:
        await tables.create_table(T)
        for key in (b"", b"k" * (key_bytes_max + 1)):
            with pytest.raises(InvalidArgument):
                await tables.put(T, [put(key)])
        await tables.put(T, [put(b"k" * key_bytes_max)])
        with pytest.raises(InvalidArgument):
            await tables.create_table("scope/other", key_length=257)
        await tables.create_table("scope/other", key_length=3)
        with pytest.raises(InvalidArgument):
            await tables.put("scope/other", [put(b"four")])

    async def test_a_read_is_bounded_in_keys_and_in_bytes_of_its_answer(self, tables: TableStore) -> None:
        await tables.create_table(T)
        await tables.put(T, [put(b"large", b"x" * value_bytes_max), put(b"small")])
        fitting = read_bytes_max // entry_wire_bytes(5, value_bytes_max)
        assert fitting >= 15, "the Java client asks for fifteen keys at a time"
        assert len(await tables.get(T, [b"large"] * fitting)) == fitting
        with pytest.raises(InvalidArgument, match="fewer keys"):
            await tables.get(T, [b"large"] * (fitting + 1))
        assert len(await tables.get(T, [b"small"] * read_keys_max)) == read_keys_max
        with pytest.raises(InvalidArgument, match="fewer keys"):
            await tables.get(T, [b"absent"] * (read_keys_max + 1))

    async def test_an_update_is_bounded(self, tables: TableStore) -> None:
        await tables.create_table(T)
        with pytest.raises(InvalidArgument, match="the limit"):
            await tables.put(T, [put(b"key", b"x" * (value_bytes_max + 1))])
        keys = [b"%d" % number for number in range(update_entries_max + 1)]
        with pytest.raises(InvalidArgument, match="the limits"):
            await tables.put(T, [put(key) for key in keys])
        with pytest.raises(InvalidArgument, match="the limits"):
            await tables.remove(T, [TableKey(key) for key in keys])
        with pytest.raises(InvalidArgument, match="the limits"):
            await tables.put(T, [put(b"%d" % number, b"x" * value_bytes_max) for number in range(17)])
        assert (await tables.table_info(T)).length == 0

    async def test_a_page_is_bounded_whatever_is_asked_for(self, tables: TableStore) -> None:
        await tables.create_table(T)
        for start in range(0, page_entries_max + 5, 5_000):
            await tables.put(T, [put(b"%d" % number, b"") for number in range(start, start + 5_000)])
        assert len((await tables.iterate(T, 1_000_000)).entries) == page_entries_max
        assert len((await tables.delta(T, 0, 1_000_000)).entries) == page_entries_max

    async def test_hash_tables_are_iterated_completely_in_a_stable_order(self, tables: TableStore) -> None:
        await tables.create_table(T)
        keys = [b"key-%d" % number for number in range(25)]
        await tables.put(T, [put(key) for key in keys])
        first = await all_keys(tables, 4)
        assert sorted(first) == sorted(keys)
        assert await all_keys(tables, 100) == first
        with pytest.raises(InvalidArgument):
            await tables.iterate(T, 10, first_key=b"a")

    async def test_fixed_key_tables_are_sorted_with_inclusive_bounds(self, tables: TableStore) -> None:
        await tables.create_table(T, key_length=1)
        await tables.put(T, [put(bytes([number])) for number in (200, 3, 127, 128, 0)])
        page = await tables.iterate(T, 10, first_key=b"\x03", last_key=b"\x80")
        assert [entry.key for entry in page.entries] == [b"\x03", b"\x7f", b"\x80"]
        page = await tables.iterate(T, 2)
        assert [entry.key for entry in page.entries] == [b"\x00", b"\x03"]
        with pytest.raises(InvalidArgument):
            await tables.iterate(T, 2, page.continuation)
        empty = await tables.iterate(T, 10, first_key=b"\xc9")
        assert (empty.entries, empty.continuation) == ((), b"")

    async def test_delta_pages_count_live_entries(self, tables: TableStore) -> None:
        await tables.create_table(T)
        empty = await tables.delta(T, 0, 10)
        assert (empty.entries, empty.should_clear, empty.reached_end, empty.last_position) == ((), False, True, 0)
        for number in range(30):
            await tables.put(T, [put(b"hot", b"%d" % number)])
        await tables.put(T, [put(b"gone")])
        await tables.remove(T, [TableKey(b"gone")])
        await tables.put(T, [put(b"a"), put(b"b"), put(b"c")])
        pages = await walk_delta(tables, 2)
        state = {entry.key: entry.value for page in pages for entry in page.entries}
        # A store may collapse within each page only, as the real one does: then the removed key shows.
        state.pop(b"gone", None)
        assert state == {b"hot": b"29", b"a": b"v", b"b": b"v", b"c": b"v"}
        assert pages[-1].reached_end
        length = (await tables.table_info(T)).length
        assert pages[-1].last_position == length
        await tables.put(T, [put(b"b", b"new")])
        [after] = await walk_delta(tables, 10, length)
        assert [(entry.key, entry.value) for entry in after.entries] == [(b"b", b"new")]
        with pytest.raises(InvalidArgument):
            await tables.delta(T, after.last_position + 1, 10)

    async def test_a_delta_from_inside_a_record_is_refused_or_begins_behind_it(self, tables: TableStore) -> None:
        await tables.create_table(T)
        [_, second] = await tables.put(T, [put(b"a", b"\xff" * 40), put(b"b")])
        for position in range(1, (await tables.table_info(T)).length):
            try:
                page = await tables.delta(T, position, 10)
            except InvalidArgument as error:
                assert str(position) in str(error)
                assert position != second
            else:
                assert [entry.key for entry in page.entries] == ([b"b"] if position <= second else [])
        assert [entry.key for entry in (await tables.delta(T, second, 10)).entries] == [b"b"]

    async def test_no_delta_of_a_fixed_key_table(self, tables: TableStore) -> None:
        await tables.create_table(T, key_length=2)
        with pytest.raises(UnsupportedOperation):
            await tables.delta(T, 0, 10)
        with pytest.raises(UnsupportedOperation):
            await tables.delete_table(T, must_be_empty=True)

    async def test_creating_and_deleting(self, tables: TableStore) -> None:
        with pytest.raises(SegmentNotFound):
            await tables.get(T, [b"a"])
        await tables.create_table(T)
        with pytest.raises(SegmentExists):
            await tables.create_table(T)
        await tables.put(T, [put(b"a")])
        with pytest.raises(TableNotEmpty):
            await tables.delete_table(T, must_be_empty=True)
        await tables.remove(T, [TableKey(b"a")])
        await tables.delete_table(T, must_be_empty=True)
        for call in (tables.delta(T, 0, 1), tables.put(T, [put(b"a")]), tables.delete_table(T, False)):
            with pytest.raises(SegmentNotFound):
                await call
        await tables.create_table(T)
        assert await tables.put(T, [put(b"a", b"2", NOT_EXISTS)]) == [0]
        await tables.delete_table(T, must_be_empty=False)
