"""Defines the contract between the cache manager and the owners of cache entries."""

from __future__ import annotations

import enum
from typing import Protocol

from segment_service.contracts.cache_storage import CacheAddress


class EntryOwner(Protocol):
    """The owner of cache entries, which forgets one when the manager evicts it."""

    def evicted(self, entry: CacheEntry) -> None:
        """Called once; the block is dropped right after."""
        ...


class Origin(enum.Enum):
    """The ways in which a block comes into the cache. It keeps its origin when others read it later."""

    APPENDED = enum.auto()
    READ = enum.auto()
    """A read at random brought it from Tier 2."""
    SCANNED = enum.auto()
    """A sequential read brought it from Tier 2; such blocks are full, and never grow."""


class CacheEntry:
    """One block with its last use. Subclassed by the read index, which adds where the bytes belong."""

    __slots__ = ("address", "generation", "is_evictable", "origin", "owner")

    def __init__(self, owner: EntryOwner, address: CacheAddress, generation: int, origin: Origin) -> None:
        self.owner = owner
        self.address = address
        self.generation = generation
        self.is_evictable = False
        self.origin = origin
