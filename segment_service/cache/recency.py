"""Orders the entries that may be evicted by their generation, the least recently used first."""

from __future__ import annotations

from collections import OrderedDict

from pravega_common.invariants import check
from segment_service.contracts.cache_entry import CacheEntry


class Recency:
    """Entries in buckets by generation, within one in the order in which they came. No method costs more with more
    entries."""

    def __init__(self) -> None:
        self._buckets: dict[int, OrderedDict[CacheEntry, None]] = {}
        self._oldest = 0

    def __bool__(self) -> bool:
        return bool(self._buckets)

    @property
    def oldest_generation(self) -> int:
        """That of the entry that ``oldest`` returns; there must be one."""
        if self._oldest not in self._buckets:
            check(bool(self._buckets), "the oldest entry of none was asked for")
            self._oldest = min(self._buckets)
        return self._oldest

    def oldest(self) -> CacheEntry:
        """The least recently used entry; there must be one."""
        return next(iter(self._buckets[self.oldest_generation]))

    def add(self, entry: CacheEntry) -> None:
        bucket = self._buckets.get(entry.generation)
        if bucket is None:
            bucket = self._buckets[entry.generation] = OrderedDict()
        bucket[entry] = None
        self._oldest = min(self._oldest, entry.generation)

    def remove(self, entry: CacheEntry) -> None:
        """Take out an entry whose generation is that with which it was added."""
        bucket = self._buckets[entry.generation]
        del bucket[entry]
        if not bucket:
            del self._buckets[entry.generation]
