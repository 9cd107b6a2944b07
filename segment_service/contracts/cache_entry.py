"""Defines the contract between the cache manager and the owners of cache entries."""

from __future__ import annotations

from typing import Protocol

from segment_service.contracts.cache_storage import CacheAddress


class EntryOwner(Protocol):
    """The owner of cache entries, which forgets one when the manager evicts it."""

    def evicted(self, entry: CacheEntry) -> None:
        """Called once; the block is dropped right after."""
        ...


class CacheEntry:
    """One block with its last use. Subclassed by the read index, which adds where the bytes belong."""

    __slots__ = ("address", "generation", "is_evictable", "is_scanned", "owner")

    def __init__(self, owner: EntryOwner, address: CacheAddress, generation: int, *, is_scanned: bool = False) -> None:
        """``is_scanned``: a sequential read brought it from Tier 2; such blocks are full, and never grow."""
        self.owner = owner
        self.address = address
        self.generation = generation
        self.is_evictable = False
        self.is_scanned = is_scanned
