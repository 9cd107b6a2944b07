"""Evicts blocks from the cache: the least recently used among those whose bytes Tier 2 has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pravega_common.invariants import check
from segment_service.cache.recency import Recency
from segment_service.contracts.cache_entry import CacheEntry
from segment_service.contracts.cache_storage import CacheStorage
from segment_service.contracts.second_level_cache import SecondLevelCache

generations_per_budget: Final = 32
"""A generation ends when this fraction of the budget was inserted: recency is as coarse as that."""
ahead_of_scans_fraction: Final = 1 / 4
"""The part of the cache that all scans of a store share for what was read ahead of them; with more than that, one
would evict what the other has not read yet."""
kept_from_scans_fraction: Final = 1 / 4
"""The part of the cache that scans do not evict from: the latest appends, and what was read at random."""
trim_fraction: Final = 1 / 64
"""A trim goes this fraction of the budget below it, so that not every insert trims."""


class CacheManager:
    """The budget of one store, over the read indices of all its containers.

    Owners declare an entry evictable once all its bytes are in Tier 2 and take that back when it grows; only
    declared entries are ever evicted, oldest generation first, except that scans evict what they brought themselves
    while other entries hold no more than ``kept_from_scans_fraction``. When nothing is left to evict the cache stays
    above its budget (this class refuses nothing): ``is_exceeded`` tells back-pressure to stop the appends until
    something may be evicted.
    """

    def __init__(
        self,
        storage: CacheStorage,
        second_level: SecondLevelCache | None = None,
        on_exceeded: Callable[[bool], None] | None = None,
    ) -> None:
        """``second_level`` is offered what is evicted, and asked before Tier 2; its maker starts and stops it.
        ``on_exceeded`` is called with each change of ``is_exceeded``."""
        self.storage = storage
        self.is_exceeded = False
        """Whether the cache is above its budget with nothing to evict."""
        self._on_exceeded = on_exceeded
        self.second_level = second_level
        self.generation = 0
        self._trim_scheduled = False
        self.evicted_bytes = 0
        """What was evicted since the start, in the units of the budget."""
        self._generation_bytes = max(1, storage.bytes_max // generations_per_budget)
        self._inserted_in_generation = 0
        self._trim_to = storage.bytes_max - int(storage.bytes_max * trim_fraction)
        self._kept_bytes = int(storage.bytes_max * kept_from_scans_fraction)
        self._ahead_bytes = int(storage.bytes_max * ahead_of_scans_fraction)
        self._used, self._scanned = Recency(), Recency()
        self._used_bytes = self._scanned_bytes = 0
        """What the entries that may be evicted hold: those that appends or random reads brought, and those of scans."""

    def inserted(self, length: int) -> None:
        """Count new bytes, end a generation when it is full, and evict if the cache is above its budget."""
        self._inserted_in_generation += length
        if self._inserted_in_generation >= self._generation_bytes:
            self._inserted_in_generation = 0
            self.generation += 1
        if self.storage.bytes_used > self.storage.bytes_max:
            self.trim(self._trim_to)
            self._note_exceeded()

    def touch(self, entry: CacheEntry) -> None:
        """The entry was used now."""
        if entry.generation == self.generation:
            return
        if entry.is_evictable:
            self._remove(entry)
            entry.generation = self.generation
            self._add(entry)
        else:
            entry.generation = self.generation

    def allow_eviction(self, entry: CacheEntry) -> None:
        """All bytes of the entry are in Tier 2."""
        if not entry.is_evictable:
            entry.is_evictable = True
            self._add(entry)
            if self.is_exceeded:
                self._schedule_trim()

    def forbid_eviction(self, entry: CacheEntry) -> None:
        """The entry holds bytes again that are not in Tier 2."""
        if entry.is_evictable:
            self._remove(entry)
            entry.is_evictable = False

    def drop(self, entry: CacheEntry) -> None:
        """The owner needs the entry no more."""
        self.forbid_eviction(entry)
        self.storage.delete(entry.address)
        if self.is_exceeded:
            self._note_exceeded()

    def shrink(self, entry: CacheEntry, length: int) -> None:
        """Move the first ``length`` bytes of the entry's block, all that is filled, to a block of that capacity. Views
        on the old one stay valid."""
        check(not entry.is_scanned, "a block of a scan is full, and cannot shrink", address=entry.address)
        storage = self.storage
        smaller = storage.insert((storage.get(entry.address, 0, length),))
        if entry.is_evictable:
            self._used_bytes -= storage.bytes_held(entry.address) - storage.bytes_held(smaller)
        storage.delete(entry.address)
        entry.address = smaller
        if self.is_exceeded:
            self._note_exceeded()

    def _schedule_trim(self) -> None:
        """Trim in the next turn of the loop: the caller is in the midst of its entries."""
        if not self._trim_scheduled:
            self._trim_scheduled = True
            asyncio.get_running_loop().call_soon(self._scheduled_trim)

    def _scheduled_trim(self) -> None:
        self._trim_scheduled = False
        if self.storage.bytes_used > self.storage.bytes_max:
            self.trim(self._trim_to)
        self._note_exceeded()

    def _note_exceeded(self) -> None:
        is_exceeded = self.storage.bytes_used > self.storage.bytes_max
        if is_exceeded != self.is_exceeded:
            self.is_exceeded = is_exceeded
            if self._on_exceeded is not None:
                self._on_exceeded(is_exceeded)

    def trim(self, bytes_target: int) -> int:
        """Evict until the cache uses no more than this, or nothing evictable is left; returns the bytes freed."""
        before = self.storage.bytes_used
        while self.storage.bytes_used > bytes_target and (self._used or self._scanned):
            entry = self._next_to_evict()
            check(entry.is_evictable, "an entry that may not be evicted was up for eviction", address=entry.address)
            entry.owner.evicted(entry)
            self.drop(entry)
        freed = before - self.storage.bytes_used
        self.evicted_bytes += freed
        return freed

    def _next_to_evict(self) -> CacheEntry:
        """The least recently used entry; one that a scan brought, while others hold less than their part."""
        if not (self._used and self._scanned):
            return (self._used or self._scanned).oldest()
        is_kept = self._used_bytes <= self._kept_bytes and self._scanned_bytes > self._ahead_bytes
        if is_kept or self._scanned.oldest_generation <= self._used.oldest_generation:
            return self._scanned.oldest()
        return self._used.oldest()

    def _add(self, entry: CacheEntry) -> None:
        if entry.is_scanned:
            self._scanned_bytes += self._bytes_of(entry)
            self._scanned.add(entry)
        else:
            self._used_bytes += self._bytes_of(entry)
            self._used.add(entry)

    def _remove(self, entry: CacheEntry) -> None:
        if entry.is_scanned:
            self._scanned_bytes -= self._bytes_of(entry)
            self._scanned.remove(entry)
        else:
            self._used_bytes -= self._bytes_of(entry)
            self._used.remove(entry)

    def _bytes_of(self, entry: CacheEntry) -> int:
        return self.storage.bytes_held(entry.address)
