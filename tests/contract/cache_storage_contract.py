"""Says how every ``CacheStorage`` behaves."""

from __future__ import annotations

import random

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.contracts.cache_storage import CacheStorage, block_overhead_bytes


def capacity(cache: CacheStorage) -> int:
    """Capacity of all blocks."""
    return cache.bytes_used - cache.block_count * block_overhead_bytes


class CacheStorageContract:
    """A subclass gives the fixture ``cache``, with a budget of one MiB."""

    def test_joined_buffers_in_one_block(self, cache: CacheStorage) -> None:
        address = cache.insert([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]])
        assert bytes(cache.get(address, 0, 6)) == b"abcdef"
        assert bytes(cache.get(address, 2, 3)) == b"cde"
        assert bytes(cache.get(address, 6, 0)) == b""
        assert (cache.bytes_max, cache.bytes_used, cache.block_count) == (1024 * 1024, 6 + block_overhead_bytes, 1)

    def test_bytes_are_copied(self, cache: CacheStorage) -> None:
        source = bytearray(b"before")
        address = cache.insert([source])
        source[:] = b"after!"
        assert bytes(cache.get(address, 0, 6)) == b"before"

    def test_a_block_is_filled_up_to_its_capacity(self, cache: CacheStorage) -> None:
        address = cache.insert([b"ab"], capacity=10)
        assert (cache.room(address), capacity(cache)) == (8, 10)
        cache.extend(address, [b"cd", b"ef"])
        assert (cache.room(address), capacity(cache)) == (4, 10)
        assert bytes(cache.get(address, 0, 6)) == b"abcdef"
        with pytest.raises(InvariantViolation):
            cache.get(address, 4, 3)
        with pytest.raises(InvariantViolation):
            cache.extend(address, [b"12345"])
        cache.extend(address, [b"1234"])
        assert cache.room(address) == 0

    def test_views_outlive_filling_and_deletion(self, cache: CacheStorage) -> None:
        rng = random.Random(1)
        kept: list[tuple[memoryview, bytes]] = []
        for _ in range(50):
            content = rng.randbytes(100)
            address = cache.insert([content], capacity=1_000)
            kept.append((cache.get(address, 0, 100), content))
            cache.extend(address, [rng.randbytes(900)])
            cache.delete(address)
        assert (cache.bytes_used, cache.block_count) == (0, 0)
        assert all(bytes(view) == content for view, content in kept)

    def test_views_are_read_only(self, cache: CacheStorage) -> None:
        address = cache.insert([b"abc"], capacity=10)
        assert cache.get(address, 0, 3).readonly
        assert cache.get(cache.adopt(b"xyz"), 0, 3).readonly

    def test_an_adopted_object_is_a_full_block(self, cache: CacheStorage) -> None:
        address = cache.adopt(b"whole")
        assert bytes(cache.get(address, 0, 5)) == b"whole"
        assert (cache.room(address), capacity(cache)) == (0, 5)

    def test_an_adopted_view_holds_all_that_it_keeps_in_memory(self, cache: CacheStorage) -> None:
        address = cache.adopt(memoryview(bytes(1_000))[10:20][2:8])
        assert (cache.room(address), capacity(cache)) == (0, 1_000)
        assert cache.bytes_held(address) == 1_000 + block_overhead_bytes
        cache.delete(address)
        assert cache.bytes_used == 0

    def test_a_block_holds_its_capacity_and_its_overhead(self, cache: CacheStorage) -> None:
        roomy, full = cache.insert([b"ab"], capacity=10), cache.adopt(b"whole")
        assert cache.bytes_held(roomy) == 10 + block_overhead_bytes
        assert cache.bytes_used == cache.bytes_held(roomy) + cache.bytes_held(full)
        cache.extend(roomy, [b"cd"])
        assert cache.bytes_held(roomy) == 10 + block_overhead_bytes
        cache.delete(roomy)
        with pytest.raises(InvariantViolation):
            cache.bytes_held(roomy)

    def test_no_insert_is_refused_and_no_address_comes_again(self, cache: CacheStorage) -> None:
        addresses = set()
        for _ in range(5):
            address = cache.insert([b"x" * 500_000])
            addresses.add(address)
            cache.delete(address)
        addresses |= {cache.insert([b"x" * 500_000]) for _ in range(5)}
        assert len(addresses) == 10
        assert capacity(cache) == 2_500_000 > cache.bytes_max

    def test_unknown_addresses(self, cache: CacheStorage) -> None:
        address = cache.insert([b"abc"])
        cache.delete(address)
        cache.delete(address)
        with pytest.raises(InvariantViolation):
            cache.get(address, 0, 1)

    def test_closing_drops_everything(self, cache: CacheStorage) -> None:
        view = cache.get(cache.insert([b"abc"]), 0, 3)
        cache.close()
        assert (cache.bytes_used, cache.block_count, bytes(view)) == (0, 0, b"abc")
