"""Holds a ``SortedMap`` to its contract: inherit it, and provide ``chunks``, empty Tier 2."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pravega_common.errors import Fenced, InvalidArgument
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import LogState
from segment_service.contracts.sorted_map import (
    SortedMap,
    map_changes_bytes_max,
    map_key_bytes_max,
    map_scan_entries_max,
    map_value_bytes_max,
)
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.rolling_storage import RollingStorage

STAMP = LogState(bytes(range(16)), 7, 3)


async def nothing() -> None:
    """A barrier that passes."""


async def open_map(chunks: ChunkStorage, epoch: int, name: str = "things") -> SortedMap:
    clock = SystemClock()
    storage = RollingStorage(chunks, 5, clock, background=False)
    await storage.start(epoch, nothing, lambda: STAMP)
    opened = SortedRunMaps(5, chunks, storage, clock).sorted_map(name)
    await opened.open()
    return opened


async def filled_map(chunks: ChunkStorage) -> tuple[SortedMap, list[bytes]]:
    """A map whose entries lie in turn in two flushes, with a removed and a late key, and the keys that it has."""
    things = await open_map(chunks, 1)
    keys = [b"%04d" % number for number in range(3_000)]
    await things.flush(dict.fromkeys(keys[::2], b"even" * 20), STAMP)
    await things.flush(dict.fromkeys(keys[1::2], b"odd" * 20), STAMP)
    await things.flush({keys[100]: None, b"0100\xff": b"behind"}, STAMP)
    return things, sorted([*keys[:100], *keys[101:], b"0100\xff"])


class SortedMapContract:
    """The tests."""

    @pytest.fixture
    async def chunks(self) -> ChunkStorage:
        raise NotImplementedError

    async def test_a_new_map_is_empty(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        assert things.stamp is None
        assert await things.get(b"a") is None
        assert await things.scan(b"", 10) == []
        assert things.is_surely_absent(b"a")

    async def test_what_was_flushed_is_there_for_this_owner_and_the_next(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        await things.flush({b"a": b"1", b"b": b"", b"c": b"3"}, STAMP)
        for owner in (things, await open_map(chunks, 2)):
            assert owner.stamp == STAMP
            assert await owner.get_many([b"c", b"x", b"b"]) == {b"b": b"", b"c": b"3"}
            assert await owner.get(b"a") == b"1"
            assert await owner.get(b"aa") is None
            assert not owner.is_surely_absent(b"a")

    async def test_the_last_change_of_a_key_counts(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        for number in range(12):
            await things.flush({b"key": b"%d" % number, b"gone": b"x" if number % 2 else None}, STAMP)
        await things.flush({b"gone": None}, replace(STAMP, high_water=9))
        for owner in (things, await open_map(chunks, 2)):
            assert await owner.scan(b"", 10) == [(b"key", b"11")]
            assert await owner.get(b"gone") is None
            assert owner.stamp is not None
            assert owner.stamp.high_water == 9

    async def test_a_flush_without_changes_moves_the_stamp(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        await things.flush({}, STAMP)
        assert (await open_map(chunks, 2)).stamp == STAMP

    async def test_scans_go_on_from_any_key_in_the_order_of_bytes(self, chunks: ChunkStorage) -> None:
        things, expected = await filled_map(chunks)
        found: list[bytes] = []
        first = b""
        while page := await things.scan(first, 700):
            found += [key for key, _ in page]
            first = page[-1][0] + b"\0"
        assert found == expected
        assert [key for key, _ in await things.scan(b"2998", 9)] == [b"2998", b"2999"]
        assert await things.scan(b"2999\0", 9) == []

    async def test_a_scan_ends_before_its_end(self, chunks: ChunkStorage) -> None:
        things, live = await filled_map(chunks)
        for first, end in ((b"", b"0"), (b"", b"0001"), (b"0098", b"0101"), (b"0100", b"0100\xff"), (b"01", b"02")):
            expected = [key for key in live if first <= key < end]
            assert [key for key, _ in await things.scan(first, 1_000, end)] == expected
        assert [key for key, _ in await things.scan(b"01", 3, b"02")] == [b"0100\xff", b"0101", b"0102"]
        assert await things.scan(b"0200", 9, b"0100") == await things.scan(b"3", 9, b"4") == []
        everything = [key for key, _ in await things.scan(b"", 1_000, b"9")]
        assert everything == live[:1_000]

    async def test_maps_do_not_meet(self, chunks: ChunkStorage) -> None:
        things, others = await open_map(chunks, 1), await open_map(chunks, 2, "others")
        await things.flush({b"a": b"1"}, STAMP)
        assert await others.get(b"a") is None

    async def test_a_large_value_and_a_long_key(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        key, value = b"k" * map_key_bytes_max, b"v" * map_value_bytes_max
        await things.flush({key: value, b"small": b"1"}, STAMP)
        assert await things.get(key) == value
        assert await things.get(b"small") == b"1"

    async def test_limits(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        large = {b"%d" % number: bytes(map_value_bytes_max) for number in range(9)}
        assert sum(map(len, large.values())) > map_changes_bytes_max
        for changes in ({b"": b""}, {bytes(map_key_bytes_max + 1): b""}, {b"k": bytes(map_value_bytes_max + 1)}, large):
            with pytest.raises(InvalidArgument):
                await things.flush(changes, STAMP)
        for count in (0, map_scan_entries_max + 1):
            with pytest.raises(InvalidArgument):
                await things.scan(b"", count)
        assert await things.scan(b"", 1) == []

    async def test_an_owner_that_a_later_one_replaced_changes_nothing_for_it(self, chunks: ChunkStorage) -> None:
        zombie = await open_map(chunks, 1)
        await zombie.flush({b"a": b"1"}, STAMP)
        owner = await open_map(chunks, 2)
        await owner.flush({b"a": b"2"}, STAMP)
        await zombie.flush({b"a": b"zombie", b"b": b"zombie"}, STAMP)
        for one in (owner, await open_map(chunks, 3)):
            assert await one.scan(b"", 9) == [(b"a", b"2")]
        with pytest.raises(Fenced):
            await zombie.open()

    async def test_calls_at_the_same_time(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        await things.flush({b"%03d" % number: b"old" for number in range(500)}, STAMP)
        asked = [asyncio.ensure_future(things.get_many([b"%03d" % number])) for number in range(0, 500, 50)]
        await asyncio.gather(*(things.flush({b"%03d" % number: b"new"}, STAMP) for number in range(8)))
        for number, answer in zip(range(0, 500, 50), asked, strict=True):
            assert (await answer)[b"%03d" % number] in ((b"old", b"new") if number < 8 else (b"old",))
        assert await things.get_many([b"%03d" % number for number in range(8)]) == {
            b"%03d" % number: b"new" for number in range(8)
        }

    async def test_a_removed_map_is_empty_when_it_is_opened_again(self, chunks: ChunkStorage) -> None:
        things = await open_map(chunks, 1)
        await things.flush({b"a": b"1"}, STAMP)
        await things.remove_all()
        again = await open_map(chunks, 2)
        assert again.stamp is None
        assert await again.scan(b"", 9) == []
        await again.flush({b"b": b"2"}, STAMP)
        assert await (await open_map(chunks, 3)).scan(b"", 9) == [(b"b", b"2")]
