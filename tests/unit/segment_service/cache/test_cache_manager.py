"""Blocks that leave the cache, and those that never do."""

from __future__ import annotations

import asyncio

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager, generations_per_budget
from segment_service.contracts.cache_entry import CacheEntry
from segment_service.contracts.cache_storage import CacheAddress, block_overhead_bytes

BUDGET = 320_000
SIZE = BUDGET // generations_per_budget


class Owner:
    """Keeps what was evicted, in order."""

    def __init__(self, manager: CacheManager) -> None:
        self.manager = manager
        self.lost: list[CacheEntry] = []

    def evicted(self, entry: CacheEntry) -> None:
        self.lost.append(entry)

    def add(self, is_evictable: bool = True) -> CacheEntry:
        """One entry that takes one generation's size of the budget."""
        address = self.manager.storage.insert([bytes(SIZE - block_overhead_bytes)])
        entry = CacheEntry(self, CacheAddress(address), self.manager.generation)
        if is_evictable:
            self.manager.allow_eviction(entry)
        self.manager.inserted(SIZE)
        return entry


def manager() -> CacheManager:
    return CacheManager(InMemoryCacheStorage(BUDGET))


def test_the_oldest_go_first_over_all_owners() -> None:
    cache = manager()
    one, other = Owner(cache), Owner(cache)
    entries = [owner.add() for _ in range(generations_per_budget // 2) for owner in (one, other)]
    assert not one.lost and not other.lost
    one.add()
    assert cache.storage.bytes_used <= BUDGET
    assert one.lost == entries[:1] and other.lost == entries[1:2]
    assert cache.evicted_bytes == 2 * SIZE


def test_a_used_entry_stays() -> None:
    cache = manager()
    owner = Owner(cache)
    entries = [owner.add() for _ in range(generations_per_budget)]
    cache.touch(entries[0])
    owner.add()
    assert entries[0] not in owner.lost
    assert owner.lost[0] is entries[1]


async def test_what_may_not_be_evicted_stays_above_the_budget() -> None:
    cache = manager()
    owner = Owner(cache)
    kept = [owner.add(is_evictable=False) for _ in range(2 * generations_per_budget)]
    assert not owner.lost
    assert cache.storage.bytes_used == 2 * BUDGET
    for entry in kept[:-3]:
        cache.allow_eviction(entry)
    owner.add()
    assert cache.storage.bytes_used <= BUDGET
    assert not set(owner.lost) & set(kept[-3:])


def test_permission_is_taken_back_and_dropped_entries_are_never_evicted() -> None:
    cache = manager()
    owner = Owner(cache)
    back, dropped, free = owner.add(), owner.add(), owner.add()
    cache.forbid_eviction(back)
    cache.drop(dropped)
    assert cache.trim(0) == SIZE
    assert owner.lost == [free]
    assert cache.storage.bytes_used == SIZE
    cache.allow_eviction(back)
    cache.touch(back)
    assert cache.trim(0) == SIZE


async def test_a_cache_with_nothing_to_evict_says_so_until_something_may_go() -> None:
    told: list[bool] = []
    cache = CacheManager(InMemoryCacheStorage(BUDGET), on_exceeded=told.append)
    owner = Owner(cache)
    entries = [owner.add(is_evictable=False) for _ in range(generations_per_budget)]
    assert told == [] and not cache.is_exceeded
    entries += [owner.add(is_evictable=False) for _ in range(2)]
    assert told == [True] and cache.is_exceeded
    cache.allow_eviction(entries[0])
    await asyncio.sleep(0)
    assert owner.lost == entries[:1] and told == [True]
    cache.allow_eviction(entries[1])
    cache.allow_eviction(entries[2])
    await asyncio.sleep(0)
    assert told == [True, False] and not cache.is_exceeded
    owner.add(is_evictable=False)
    owner.add(is_evictable=False)
    assert told[-1]
    for entry in entries[3:5]:
        cache.drop(entry)
    assert not told[-1] and cache.storage.bytes_used <= BUDGET


def test_a_block_that_shrinks_keeps_its_bytes_its_views_and_its_place() -> None:
    cache = manager()
    owner = Owner(cache)
    entry = CacheEntry(owner, cache.storage.insert([b"kept"], capacity=SIZE), cache.generation)
    cache.allow_eviction(entry)
    other = owner.add()
    view = cache.storage.get(entry.address, 0, 4)
    cache.shrink(entry, 4)
    assert bytes(cache.storage.get(entry.address, 0, 4)) == bytes(view) == b"kept"
    assert cache.storage.bytes_used == SIZE + 4 + block_overhead_bytes
    assert cache.trim(0) == SIZE + 4 + block_overhead_bytes
    assert owner.lost == [entry, other]
