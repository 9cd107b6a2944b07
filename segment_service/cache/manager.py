"""Evicts blocks from the cache: the least recently used among those whose bytes Tier 2 has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pravega_common.invariants import check
from segment_service.cache.recency import Recency
from segment_service.contracts.cache_entry import CacheEntry, Origin
from segment_service.contracts.cache_storage import CacheStorage
from segment_service.contracts.second_level_cache import SecondLevelCache

generations_per_budget: Final = 32
"""A generation ends when this fraction of the budget was inserted: recency is as coarse as that."""
ahead_of_scans_fraction: Final = 1 / 4
"""The part of the cache that all scans of a store share for what was read ahead of them; with more than that, one
would evict what the other has not read yet."""
kept_from_scans_fraction: Final = 1 / 4
"""The part of the cache that scans do not evict from: the latest appends, and what was read at random."""
appended_bytes_max_default: Final = 512 * 1024 * 1024
"""The most that appends keep beyond what is not in Tier 2 yet, however large the cache is. Their memory is used again
and again; a cache that grew by each append would cost it fresh pages, 0.4 CPU seconds a GB."""
trim_fraction: Final = 1 / 64
"""A trim goes this fraction of the budget below it, so that not every insert trims."""


class _Group:
    """The entries of one origin that may be evicted, and the bytes that they hold."""

    def __init__(self) -> None:
        self.recency = Recency()
        self.bytes_held = 0

    def __bool__(self) -> bool:
        return bool(self.recency)


class CacheManager:
    """The budget of one store, over the read indices of all its containers.

    Owners declare an entry evictable once all its bytes are in Tier 2 and take that back when it grows; only
    declared entries are ever evicted, oldest generation first, except that scans evict what they brought themselves
    while other entries hold no more than ``kept_from_scans_fraction``, and appends keep no more than
    ``appended_bytes_max``. When nothing is left to evict the cache stays
    above its budget (this class refuses nothing): ``is_exceeded`` tells back-pressure to stop the appends until
    something may be evicted.
    """

    def __init__(
        self,
        storage: CacheStorage,
        second_level: SecondLevelCache | None = None,
        on_exceeded: Callable[[bool], None] | None = None,
        appended_bytes_max: int = appended_bytes_max_default,
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
        self._appended_bytes_max = appended_bytes_max
        self._groups = {origin: _Group() for origin in Origin}
        self._appended, self._read, self._scanned = self._groups.values()

    def inserted(self, length: int) -> None:
        """Count new bytes, end a generation when it is full, and evict if the cache is above its budget."""
        self._inserted_in_generation += length
        if self._inserted_in_generation >= self._generation_bytes:
            self._inserted_in_generation = 0
            self.generation += 1
        if self.storage.bytes_used > self.storage.bytes_max:
            self.trim(self._trim_to)
            self._note_exceeded()
        if self._appended.bytes_held > self._appended_bytes_max:
            self._trim_appended()

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
        check(entry.origin is not Origin.SCANNED, "a block of a scan is full, and cannot shrink", address=entry.address)
        storage = self.storage
        smaller = storage.insert((storage.get(entry.address, 0, length),))
        if entry.is_evictable:
            self._groups[entry.origin].bytes_held -= storage.bytes_held(entry.address) - storage.bytes_held(smaller)
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
        while self.storage.bytes_used > bytes_target and any(self._groups.values()):
            self._evict(self._next_to_evict())
        return before - self.storage.bytes_used

    def _trim_appended(self) -> None:
        target = self._appended_bytes_max - int(self._appended_bytes_max * trim_fraction)
        while self._appended.bytes_held > target:
            self._evict(self._appended.recency.oldest())

    def _evict(self, entry: CacheEntry) -> None:
        check(entry.is_evictable, "an entry that may not be evicted was up for eviction", address=entry.address)
        before = self.storage.bytes_used
        entry.owner.evicted(entry)
        self.drop(entry)
        self.evicted_bytes += before - self.storage.bytes_used

    def _next_to_evict(self) -> CacheEntry:
        """The least recently used entry; one that a scan brought, while others hold less than their part."""
        others = [group for group in (self._appended, self._read) if group]
        if not others:
            return self._scanned.recency.oldest()
        other = min((group.recency for group in others), key=lambda recency: recency.oldest_generation)
        if not self._scanned:
            return other.oldest()
        scanned = self._scanned.recency
        is_kept = sum(group.bytes_held for group in others) <= self._kept_bytes
        if is_kept and self._scanned.bytes_held > self._ahead_bytes:
            return scanned.oldest()
        return (scanned if scanned.oldest_generation <= other.oldest_generation else other).oldest()

    def _add(self, entry: CacheEntry) -> None:
        group = self._groups[entry.origin]
        group.bytes_held += self._bytes_of(entry)
        group.recency.add(entry)

    def _remove(self, entry: CacheEntry) -> None:
        group = self._groups[entry.origin]
        group.bytes_held -= self._bytes_of(entry)
        group.recency.remove(entry)

    def _bytes_of(self, entry: CacheEntry) -> int:
        return self.storage.bytes_held(entry.address)
