"""The cache that segments hold follows the bytes that they have, not how many segments there are."""

from __future__ import annotations

import random

import pytest

from pravega_common.services.cache_size import cache_bytes_least
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.cache_storage import block_bytes_min, block_overhead_bytes
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.read_index.segment_read_index import SegmentReadIndex

KIB, MIB = 1 << 10, 1 << 20


def index(cache: CacheManager, segment_id: int = 1) -> SegmentReadIndex:
    return SegmentReadIndex(0, SegmentMetadata(segment_id, f"scope/segment-{segment_id}"), cache)


def append(segment: SegmentReadIndex, data: Buffer) -> None:
    offset = segment.metadata.length
    segment.metadata.length += len(data)
    segment.append(offset, [data])


def flush(segment: SegmentReadIndex) -> None:
    segment.metadata.set_storage_length(segment.metadata.length)
    segment.mark_stored()


def read(segment: SegmentReadIndex, offset: int, end: int) -> bytes:
    views: list[memoryview] = []
    assert segment.collect(offset, end, views) == end
    return b"".join(views)


def test_a_hundred_thousand_segments_of_a_hundred_bytes_hold_little_more_than_their_fixed_cost() -> None:
    cache = CacheManager(InMemoryCacheStorage(cache_bytes_least))
    segments = [index(cache, number) for number in range(100_000)]
    data = bytes(100)
    for segment in segments:
        append(segment, data)
    assert cache.storage.bytes_used <= len(segments) * (block_bytes_min + block_overhead_bytes)
    assert cache.storage.bytes_used <= 130 * MIB


def test_five_hundred_steady_segments_do_not_fill_the_default_budget() -> None:
    """Each brings 4 KiB between two flushes and has brought 1.2 MiB; what is held now can only be the tails."""
    cache = CacheManager(InMemoryCacheStorage(cache_bytes_least))
    segments = [index(cache, number) for number in range(500)]
    data = bytes(4 * KIB)
    for _ in range(300):
        for segment in segments:
            append(segment, data)
            flush(segment)
    for segment in segments:
        append(segment, data)
    cache.trim(0)
    assert 0 < cache.storage.bytes_used <= len(segments) * 32 * KIB
    assert not cache.is_exceeded


@pytest.mark.parametrize("burst", [300 * KIB, 3 * MIB, 9 * MIB + 5])
def test_a_tail_shrinks_when_its_segment_goes_cold(burst: int) -> None:
    cache = CacheManager(InMemoryCacheStorage(64 * MIB))
    segment = index(cache)
    data = bytes(range(256)) * (burst // 256)
    for first in range(0, len(data), 10 * KIB):
        append(segment, data[first : first + 10 * KIB])
    held: list[memoryview] = []
    segment.collect(len(data) - 1_000, len(data), held)
    flush(segment)
    held_by_blocks = cache.storage.bytes_used - cache.storage.block_count * block_overhead_bytes
    assert held_by_blocks <= len(data) + max(64 * KIB, len(data) // 4)
    assert b"".join(held) == data[-1_000:]
    assert read(segment, 0, len(data)) == data
    append(segment, b"more")
    assert read(segment, len(data) - 4, len(data) + 4) == data[-4:] + b"more"
    flush(segment)
    assert cache.trim(0) > 0
    assert cache.storage.bytes_used == 0


def test_blocks_of_a_busy_segment_are_large_and_are_not_copied() -> None:
    """There is always more behind what a flush brings."""
    cache = CacheManager(InMemoryCacheStorage(64 * MIB))
    segment = index(cache)
    data = bytes(10 * KIB)
    tails: set[int] = set()
    for _ in range(32):
        for _ in range(100):
            append(segment, data)
        segment.metadata.set_storage_length(segment.metadata.length - len(data))
        segment.mark_stored()
        tails |= {entry.address for entry in segment.entries}
    assert tails == {entry.address for entry in segment.entries}, "a block was replaced"
    assert len(tails) <= 32 + 12


def received(size: int, length: int) -> memoryview:
    """``length`` bytes of an append in the middle of a receive buffer."""
    buffer = bytearray(random.Random(size).randbytes(size))
    begin = (size - length) // 2
    return memoryview(buffer).toreadonly()[begin : begin + length]


def test_an_append_that_fills_its_receive_buffer_becomes_a_block_without_a_copy() -> None:
    cache = CacheManager(InMemoryCacheStorage(64 * MIB))
    segment = index(cache)
    appends = [received(MIB, MIB - 4 * KIB) for _ in range(3)]
    for data in appends:
        append(segment, data)
    views: list[memoryview] = []
    segment.collect(0, segment.metadata.length, views)
    assert len(views) == 3 and all(view.obj is data.obj for view, data in zip(views, appends, strict=True))
    assert cache.storage.bytes_used == 3 * (MIB + block_overhead_bytes)
    flush(segment)
    cache.trim(0)
    assert cache.storage.bytes_used == 0


@pytest.mark.parametrize(("size", "length"), [(2 * MIB, MIB), (MIB, 900 * KIB), (40 * KIB, 40 * KIB)])
def test_an_append_that_would_keep_much_else_or_is_small_is_copied(size: int, length: int) -> None:
    segment = index(CacheManager(InMemoryCacheStorage(64 * MIB)))
    data = received(size, length)
    append(segment, data)
    views: list[memoryview] = []
    segment.collect(0, length, views)
    assert all(view.obj is not data.obj for view in views)
    assert b"".join(views) == data


def test_large_and_small_appends_in_turn_hold_little_more_than_their_bytes() -> None:
    cache = CacheManager(InMemoryCacheStorage(64 * MIB))
    segment = index(cache)
    written = b""
    for number in range(20):
        for data in (received(MIB, MIB - 4 * KIB), bytes([number]) * 100):
            append(segment, data)
            written += data
        flush(segment)
    assert read(segment, 0, len(written)) == written
    append(segment, received(MIB, MIB - 4 * KIB))
    blocks = 2 * 20 + 1
    assert cache.storage.bytes_used <= 21 * MIB + 20 * 2 * KIB + blocks * block_overhead_bytes
