"""Blocks that leave the cache, and those that never do."""

from __future__ import annotations

import asyncio

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager, generations_per_budget, kept_from_scans_fraction
from segment_service.contracts.cache_entry import CacheEntry, Origin
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

    def add(self, is_evictable: bool = True, *, origin: Origin = Origin.APPENDED) -> CacheEntry:
        """One entry that takes one generation's size of the budget."""
        address = self.manager.storage.insert([bytes(SIZE - block_overhead_bytes)])
        entry = CacheEntry(self, CacheAddress(address), self.manager.generation, origin)
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
    entry = CacheEntry(owner, cache.storage.insert([b"kept"], capacity=SIZE), cache.generation, Origin.APPENDED)
    cache.allow_eviction(entry)
    other = owner.add()
    view = cache.storage.get(entry.address, 0, 4)
    cache.shrink(entry, 4)
    assert bytes(cache.storage.get(entry.address, 0, 4)) == bytes(view) == b"kept"
    assert cache.storage.bytes_used == SIZE + 4 + block_overhead_bytes
    assert cache.trim(0) == SIZE + 4 + block_overhead_bytes
    assert owner.lost == [entry, other]


def test_a_scan_evicts_its_own_blocks_before_the_part_that_is_kept_from_scans() -> None:
    cache = manager()
    owner = Owner(cache)
    kept = int(generations_per_budget * kept_from_scans_fraction)
    used = [owner.add() for _ in range(2 * kept)]
    scanned = [owner.add(origin=Origin.SCANNED) for _ in range(4 * generations_per_budget)]
    assert set(owner.lost) & set(used) == set(used[:kept]), "the least recently used go, down to the part that is kept"
    lost = [entry for entry in owner.lost if entry.origin is Origin.SCANNED]
    assert lost == scanned[: len(lost)] and len(lost) > 3 * generations_per_budget - kept
    assert cache.storage.bytes_used <= BUDGET


def test_what_scans_did_not_use_for_long_goes_first() -> None:
    cache = manager()
    owner = Owner(cache)
    scanned = [owner.add(origin=Origin.SCANNED) for _ in range(generations_per_budget // 2)]
    used = [owner.add() for _ in range(generations_per_budget)]
    assert owner.lost[: len(scanned)] == scanned
    assert not set(owner.lost) & set(used[1:])


def test_scans_keep_what_was_read_ahead_of_them_when_little_else_may_be_evicted() -> None:
    cache = manager()
    owner = Owner(cache)
    stuck = [owner.add(is_evictable=False) for _ in range(generations_per_budget * 3 // 4)]
    used = [owner.add() for _ in range(generations_per_budget // 8)]
    scanned = [owner.add(origin=Origin.SCANNED) for _ in range(generations_per_budget // 4)]
    assert owner.lost == used, "none of what was read ahead"
    owner.add(origin=Origin.SCANNED)
    assert owner.lost[len(used) :] == scanned[:2] and not set(owner.lost) & set(stuck)


def test_blocks_that_shrink_and_entries_that_are_touched_keep_the_account() -> None:
    cache = manager()
    owner = Owner(cache)
    entry = CacheEntry(owner, cache.storage.insert([b"kept"], capacity=SIZE), cache.generation, Origin.APPENDED)
    cache.allow_eviction(entry)
    cache.shrink(entry, 4)
    kept = int(generations_per_budget * kept_from_scans_fraction)
    used = [owner.add() for _ in range(kept - 1)]
    for _ in range(3):
        for one in used:
            cache.touch(one)
        [owner.add(origin=Origin.SCANNED) for _ in range(generations_per_budget)]
    assert not set(owner.lost) & {entry, *used}, "one shrank: all of them fit into the part that is kept"


def test_appends_keep_no_more_than_their_part_of_a_large_cache() -> None:
    """The rest of it is for what is read: random reads and scans fill it whole."""
    part = BUDGET // 4
    cache = CacheManager(InMemoryCacheStorage(BUDGET), appended_bytes_max=part)
    owner = Owner(cache)
    appended = [owner.add() for _ in range(generations_per_budget // 2)]
    assert part - 2 * SIZE < cache.storage.bytes_used <= part
    assert owner.lost == appended[: len(owner.lost)], "the oldest went"
    assert cache.evicted_bytes == SIZE * len(owner.lost)
    read = [owner.add(origin=origin) for origin in (Origin.READ, Origin.SCANNED) for _ in range(10)]
    assert not set(owner.lost) & set(read)


def test_appends_that_are_not_in_tier_2_stay_beyond_their_part() -> None:
    cache = CacheManager(InMemoryCacheStorage(BUDGET), appended_bytes_max=BUDGET // 4)
    owner = Owner(cache)
    stuck = [owner.add(is_evictable=False) for _ in range(generations_per_budget // 2)]
    assert not owner.lost
    for entry in stuck:
        cache.allow_eviction(entry)
    owner.add()
    assert cache.storage.bytes_used <= BUDGET // 4 and owner.lost == stuck[: len(owner.lost)]
