"""The answer to a read, at every place a reader may stand (docs/wire-protocol.md 4)."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import (
    BadOffset,
    ContainerOffline,
    InvalidArgument,
    SegmentMerged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
)
from segment_service.contracts.segment_store import read_bytes_max
from tests.support.fakes.container_without_log import container, joined


async def test_available_bytes_do_not_touch_the_tail() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"hello")
        c.append(s, b" world")
        result = await c.index.read(s, 2, 9)
        assert (joined(result.data), result.at_tail, result.end_of_segment) == (b"llo world", False, False)
        assert not result.has_waited
        longer = await c.index.read(s, 2, 10)
        assert (joined(longer.data), longer.at_tail, longer.end_of_segment) == (b"llo world", True, False)


async def test_small_appends_are_read_as_one_view() -> None:
    async with container() as c:
        s = c.create("s")
        for number in range(100):
            c.append(s, b"%03d" % number)
        result = await c.index.read(s, 0, 1000)
        assert len(result.data) == 1
        assert joined(result.data) == b"".join(b"%03d" % number for number in range(100))


async def test_a_view_does_not_change_when_its_block_is_filled_on_or_evicted() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"first")
        view = (await c.index.read(s, 0, 100)).data[0]
        c.append(s, b"second")
        await c.flush(s)
        assert c.evict() > 0
        c.append(s, b"third")
        assert bytes(view) == b"first"
        assert view.readonly


async def test_a_read_is_capped() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"x" * (read_bytes_max + 5))
        result = await c.index.read(s, 0, 8 * read_bytes_max)
        assert (result.length, result.at_tail) == (read_bytes_max, False)


async def test_tail_read_waits_for_an_append_at_its_offset() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"abc")
        waiting = asyncio.create_task(c.index.read(s, 5, 100))
        await asyncio.sleep(0)
        c.append(s, b"de")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        c.append(s, b"fgh")
        result = await waiting
        assert (joined(result.data), result.at_tail, result.has_waited) == (b"fgh", True, True)


async def test_sealing_a_waiting_read_and_reading_a_sealed_end() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"abc")
        waiting = asyncio.create_task(c.index.read(s, 3, 100))
        await asyncio.sleep(0)
        c.seal(s)
        with pytest.raises(SegmentSealed) as sealed:
            await waiting
        assert sealed.value.offset == 3
        at_end = await c.index.read(s, 3, 100)
        assert (at_end.data, at_end.at_tail, at_end.end_of_segment) == ((), False, True)
        into_end = await c.index.read(s, 1, 100)
        assert (joined(into_end.data), into_end.at_tail, into_end.end_of_segment) == (b"bc", False, True)
        with pytest.raises(BadOffset) as bad:
            await c.index.read(s, 4, 100)
        assert (bad.value.expected_offset, bad.value.offset) == (3, 4)


async def test_append_and_seal_in_one_turn_give_the_waiting_reader_its_bytes() -> None:
    async with container() as c:
        s = c.create("s")
        waiting = asyncio.create_task(c.index.read(s, 0, 100))
        await asyncio.sleep(0)
        c.append(s, b"last")
        c.seal(s)
        result = await waiting
        assert (joined(result.data), result.at_tail, result.end_of_segment) == (b"last", False, True)


async def test_truncated_deleted_missing_and_bad_arguments() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"0123456789")
        c.truncate(s, 4)
        with pytest.raises(SegmentTruncated) as truncated:
            await c.index.read(s, 3, 5)
        assert (truncated.value.start_offset, truncated.value.offset) == (4, 3)
        assert joined((await c.index.read(s, 4, 6)).data) == b"456789"
        waiting = asyncio.create_task(c.index.read(s, 10, 5))
        await asyncio.sleep(0)
        c.delete(s)
        with pytest.raises(SegmentNotFound):
            await waiting
        with pytest.raises(SegmentNotFound):
            await c.index.read(s, 4, 5)
        with pytest.raises(SegmentNotFound):
            await c.index.read(99, 0, 5)
        with pytest.raises(InvalidArgument, match="-1"):
            await c.index.read(s, -1, 5)
        assert c.cache.storage.bytes_used == 0


async def test_closing_ends_waiting_reads_empty_and_refuses_new_ones() -> None:
    async with container() as c:
        s = c.create("s")
        waiting = asyncio.create_task(c.index.read(s, 0, 5))
        await asyncio.sleep(0)
        c.index.close()
        result = await waiting
        assert (result.data, result.at_tail, result.end_of_segment) == ((), True, False)
        with pytest.raises(ContainerOffline):
            await c.index.read(s, 0, 5)


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    async with container() as c:
        s = c.create("s")
        waiting = [asyncio.create_task(c.index.read(s, 0, 5)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        waiters = c.index._indices[s].waiters  # private: a waiter that stays is visible only as memory
        assert len(waiters) == 2
        c.append(s, b"x")
        assert joined((await waiting[0]).data) == b"x"
        assert joined((await waiting[2]).data) == b"x"
        assert len(waiters) == 0


async def test_merge_boundaries_are_invisible_and_wake_readers() -> None:
    async with container() as c:
        target, source = c.create("t"), c.create("x")
        c.append(target, b"aaa")
        c.append(source, b"bbbb")
        waiting = asyncio.create_task(c.index.read(target, 3, 100))
        on_source = asyncio.create_task(c.index.read(source, 4, 100))
        await asyncio.sleep(0)
        c.merge(target, source)
        c.append(target, b"cc")
        assert joined((await waiting).data) == b"bbbbcc"
        with pytest.raises(SegmentMerged):
            await on_source
        assert joined((await c.index.read(target, 0, 9)).data) == b"aaabbbbcc"
        assert joined(c.index.read_cached(source, 1, 2)) == b"bb"


async def test_what_still_comes_after_closing_is_ignored() -> None:
    async with container() as c:
        s, x = c.create("s"), c.create("x")
        c.append(s, b"abc")
        c.index.close()
        c.append(s, b"d")
        c.append(x, b"e")
        c.merge(s, x)
        c.seal(s)
        with pytest.raises(ContainerOffline):
            c.index.read_cached(s, 0, 1)
        assert c.cache.storage.bytes_used == 0
