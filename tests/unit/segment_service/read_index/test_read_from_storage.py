"""Reads of what left the cache: fetches, sharing, read-ahead, and merges that move bytes meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import SegmentDamaged, SegmentMerged, SegmentTruncated, Unavailable
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.segment_store import read_bytes_max
from segment_service.read_index.fetch_budget import fetch_bytes_max
from tests.support.eventually import eventually
from tests.support.fakes.container_without_log import FakeContainer, container, joined

MIB = 1024 * 1024


def pattern(length: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in range(length // 8 + 1))[:length]


def is_cached(c: FakeContainer, segment_id: int, offset: int, length: int) -> bool:
    try:
        c.index.read_cached(segment_id, offset, length)
    except InvariantViolation:
        return False
    return True


async def turns(count: int = 10) -> None:
    """Let tasks that can run get on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def cold(c: FakeContainer, data: bytes) -> int:
    """A segment whose bytes are all in Tier 2 and nowhere else."""
    segment = c.create("s")
    c.append(segment, data)
    await c.flush(segment)
    c.evict()
    assert c.cache.storage.bytes_used == 0
    return segment


async def test_only_what_is_in_storage_is_evicted() -> None:
    async with container() as c:
        s = c.create("s")
        c.append(s, b"a" * 10)
        await c.flush(s)
        c.append(s, b"b" * 10)
        assert c.evict() == 0, "the block was extended by bytes that are not in Tier 2"
        await c.flush(s)
        assert c.evict() > 0
        assert joined((await c.index.read(s, 5, 10)).data) == b"a" * 5 + b"b" * 5


async def test_one_reply_spans_storage_and_cache() -> None:
    async with container() as c:
        data = pattern(100_000)
        s = await cold(c, data)
        c.append(s, b"tail")
        result = await c.index.read(s, 50_000, 10**6)
        assert joined(result.data) == data[50_000:] + b"tail"
        assert result.at_tail


async def test_concurrent_readers_share_a_fetch_and_survive_a_cancelled_one() -> None:
    async with container() as c:
        data = pattern(300_000)
        s = await cold(c, data)
        c.storage.gate.clear()
        readers = [asyncio.create_task(c.index.read(s, offset, 1000)) for offset in (70_000, 70_100, 80_000)]
        await c.storage.wait_reads(1)
        readers[0].cancel()
        await asyncio.sleep(0)
        c.storage.gate.set()
        assert joined((await readers[1]).data) == data[70_100:71_100]
        assert joined((await readers[2]).data) == data[80_000:81_000]
        assert len(c.storage.reads) == 1


async def test_a_big_read_fetches_its_pieces_at_once() -> None:
    async with container() as c:
        data = pattern(3 * MIB)
        s = await cold(c, data)
        c.storage.gate.clear()
        reader = asyncio.create_task(c.index.read(s, 0, read_bytes_max))
        await c.storage.wait_reads(2)
        assert [read[1:] for read in c.storage.reads] == [(0, fetch_bytes_max), (fetch_bytes_max, fetch_bytes_max)]
        c.storage.gate.set()
        assert joined((await reader).data) == data[:read_bytes_max]


async def test_a_sequential_reader_is_read_ahead_of_and_a_random_one_is_not() -> None:
    async with container() as c:
        data = pattern(8 * MIB)
        s = await cold(c, data)
        await c.index.read(s, 3 * MIB, 100)
        await c.index.read(s, 2 * MIB, 100)
        assert len(c.storage.reads) == 2
        assert sum(read[2] for read in c.storage.reads) <= 2 * 128 * 1024
        c.storage.reads.clear()
        await c.index.read(s, 0, MIB)
        await c.index.read(s, MIB, MIB)
        await eventually(lambda: is_cached(c, s, 2 * MIB, 3 * MIB), "the next bytes are read ahead")
        c.storage.reads.clear()
        result = await c.index.read(s, 2 * MIB, MIB)
        assert joined(result.data) == data[2 * MIB : 3 * MIB]
        assert all(offset >= 5 * MIB for _, offset, _ in c.storage.reads), "the next bytes had been read ahead"


async def test_a_scan_of_much_more_than_the_cache_leaves_the_latest_appends_in_it() -> None:
    async with container(cache_bytes=32 * MIB) as c:
        cold_data, hot_data = pattern(96 * MIB), pattern(4 * MIB)
        scanned = await cold(c, cold_data)
        hot = c.create("hot")
        for position in range(0, len(hot_data), MIB):
            c.append(hot, hot_data[position : position + MIB])
        await c.flush(hot)
        offset = 0
        while offset < len(cold_data):
            data = joined((await c.index.read(scanned, offset, read_bytes_max)).data)
            assert data == cold_data[offset : offset + len(data)]
            offset += len(data)
        c.storage.reads.clear()
        assert joined((await c.index.read(hot, 0, MIB)).data) == hot_data[:MIB]
        assert is_cached(c, hot, 0, len(hot_data))
        assert c.storage.reads == []
        assert c.cache.storage.bytes_used <= c.cache.storage.bytes_max


async def test_a_storage_failure_reaches_the_readers_and_the_next_read_tries_again() -> None:
    async with container() as c:
        s = await cold(c, pattern(1000))
        c.storage.failure = Unavailable("tier 2 is away")
        with pytest.raises(Unavailable, match="tier 2 is away"):
            await c.index.read(s, 0, 100)
        c.storage.failure = None
        assert joined((await c.index.read(s, 0, 100)).data) == pattern(1000)[:100]


async def test_parts_in_storage_only_are_read_from_the_source_until_the_merge_is_complete() -> None:
    async with container() as c:
        target, source = c.create("t"), c.create("x")
        c.append(target, b"t" * 100)
        c.append(source, b"x" * 100)
        await c.flush(source)
        c.evict()
        c.append(source, b"y" * 50)
        c.merge(target, source)
        result = await c.index.read(target, 90, 1000)
        assert joined(result.data) == b"t" * 10 + b"x" * 100 + b"y" * 50
        c.evict()
        await c.flush(target, 100)
        await c.flush(source)
        c.evict()
        assert joined((await c.index.read(target, 90, 1000)).data) == b"t" * 10 + b"x" * 100 + b"y" * 50
        c.evict()
        await c.storage.concat(target, 100, source)
        assert joined((await c.index.read(target, 90, 1000)).data) == b"t" * 10 + b"x" * 100 + b"y" * 50
        c.metadata.segments[target].set_storage_length(250)
        c.index.merge_completed(target, source)
        c.index.storage_length_changed(target)
        c.evict()
        c.storage.reads.clear()
        assert joined((await c.index.read(target, 90, 1000)).data) == b"t" * 10 + b"x" * 100 + b"y" * 50
        assert {segment for segment, _, _ in c.storage.reads} == {target}
        assert list(c.index._indices) == [target]  # private: a ghost that stays is visible only as memory


async def test_a_merge_of_a_merge() -> None:
    async with container() as c:
        target, middle, source = c.create("t"), c.create("m"), c.create("x")
        c.append(source, b"x" * 30)
        await c.flush(source)
        c.evict()
        c.append(middle, b"m" * 20)
        c.merge(middle, source)
        c.append(middle, b"n" * 10)
        c.append(target, b"t" * 5)
        c.merge(target, middle)
        expected = b"t" * 5 + b"m" * 20 + b"x" * 30 + b"n" * 10
        assert joined((await c.index.read(target, 0, 100)).data) == expected
        c.evict()
        assert joined((await c.index.read(target, 0, 100)).data) == expected
        await c.flush(middle, 20)
        await c.storage.concat(middle, 20, source)
        c.metadata.segments[middle].set_storage_length(50)
        c.index.merge_completed(middle, source)
        c.evict()
        assert joined((await c.index.read(target, 0, 100)).data) == expected
        assert joined(c.index.read_cached(middle, 50, 10)) == b"n" * 10


async def test_a_merge_completes_while_a_fetch_of_the_source_is_on_its_way() -> None:
    async with container() as c:
        target, source = c.create("t"), c.create("x")
        c.append(source, b"x" * 100)
        await c.flush(source)
        c.evict()
        on_source = asyncio.create_task(c.index.read(source, 0, 10))
        c.storage.gate.clear()
        await c.storage.wait_reads(1)
        c.merge(target, source)
        on_target = asyncio.create_task(c.index.read(target, 0, 100))
        await turns()
        await c.storage.concat(target, 0, source)
        c.metadata.segments[target].set_storage_length(100)
        c.index.merge_completed(target, source)
        c.storage.gate.set()
        assert joined((await on_target).data) == b"x" * 100
        with pytest.raises(SegmentMerged):
            await on_source


async def merged_and_cold(c: FakeContainer, data: bytes) -> tuple[int, int]:
    """A target and its source, whose bytes are in Tier 2 only and as the source's, as far as the container knows."""
    target, source = c.create("t"), c.create("x")
    c.append(source, data)
    await c.flush(source)
    c.evict()
    c.merge(target, source)
    return target, source


async def test_a_source_that_looks_damaged_is_read_from_the_target_that_has_its_bytes() -> None:
    """A late put of an earlier owner brings a manifest of the source back, without what that one needs."""
    async with container() as c:
        target, source = await merged_and_cold(c, b"x" * 100)
        await c.storage.concat(target, 0, source)
        c.storage.damaged.add(source)
        assert joined((await c.index.read(target, 0, 100)).data) == b"x" * 100
        assert not c.metadata.quarantine


async def test_a_source_that_is_damaged_before_its_target_has_its_bytes_is_quarantined() -> None:
    async with container() as c:
        target, source = await merged_and_cold(c, b"x" * 100)
        c.storage.damaged.add(source)
        with pytest.raises(SegmentDamaged, match=f"#{source} is damaged"):
            await c.index.read(target, 0, 100)
        assert c.metadata.quarantine.reason(target) == f"#{source} is damaged"


async def test_a_merge_that_completes_while_its_source_looks_damaged_is_no_damage() -> None:
    """Bytes of the target in front of those of the source are truncated meanwhile."""
    async with container() as c:
        target, source = await merged_and_cold(c, b"x" * 100)
        c.storage.damaged.add(source)
        c.storage.gate.clear()
        reader = asyncio.create_task(c.index.read(target, 0, 100))
        await c.storage.wait_reads(1)
        await c.storage.concat(target, 0, source)
        c.metadata.segments[target].set_storage_length(100)
        c.index.merge_completed(target, source)
        c.truncate(target, 50)
        await c.storage.truncate(target, 50)
        c.storage.gate.set()
        with pytest.raises(SegmentTruncated):
            await reader
        assert not c.metadata.quarantine


async def test_truncation_while_a_fetch_is_on_its_way() -> None:
    async with container() as c:
        s = await cold(c, pattern(1000))
        c.storage.gate.clear()
        reader = asyncio.create_task(c.index.read(s, 0, 100))
        await c.storage.wait_reads(1)
        c.truncate(s, 500)
        await c.storage.truncate(s, 500)
        c.storage.gate.set()
        with pytest.raises(Exception, match="start offset 500"):
            await reader
        assert joined((await c.index.read(s, 500, 100)).data) == pattern(1000)[500:600]


async def test_a_budget_too_small_for_what_is_not_in_storage_never_refuses() -> None:
    async with container(cache_bytes=64 * 1024) as c:
        s = c.create("s")
        data = pattern(MIB)
        for position in range(0, MIB, 1024):
            c.append(s, data[position : position + 1024])
        assert c.cache.storage.bytes_used >= MIB
        await c.flush(s)
        c.append(s, b"x")
        assert c.cache.storage.bytes_used <= 2 * MIB
        assert joined((await c.index.read(s, MIB - 10, 100)).data) == data[-10:] + b"x"


async def test_the_writer_gets_cached_views_or_an_invariant_violation() -> None:
    async with container() as c:
        s = await cold(c, b"0123456789")
        with pytest.raises(InvariantViolation):
            c.index.read_cached(s, 0, 5)
        with pytest.raises(InvariantViolation):
            c.index.read_cached(77, 0, 5)
        assert c.index.read_cached(77, 0, 0) == []


async def test_a_read_in_memory_finds_what_is_all_there_and_nothing_else() -> None:
    async with container() as c:
        segment = await cold(c, pattern(100))
        assert c.index.read_in_memory(segment, 0, 10) is None, "it is in Tier 2"
        c.append(segment, b"z" * 20)
        for offset, length in ((100, 20), (105, 8), (110, 50)):
            found = c.index.read_in_memory(segment, offset, length)
            assert found == await c.index.read(segment, offset, length)
        assert c.index.read_in_memory(segment, 95, 10) is None, "a part of it is in Tier 2"
        assert c.index.read_in_memory(segment, 120, 8) is None, "a read would wait there"
        assert c.index.read_in_memory(77, 0, 8) is None
        other = c.create("other")
        c.append(other, b"0123456789")
        c.truncate(other, 4)
        assert c.index.read_in_memory(other, 2, 8) is None, "a read says that it is truncated"
        c.index.close()
        assert c.index.read_in_memory(segment, 100, 8) is None
