"""Defines the contract of a block cache: bytes by address, no order, no durability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NewType, Protocol

from segment_service.contracts.buffer import Buffer

CacheAddress = NewType("CacheAddress", int)
"""Names one block of one cache; never used twice in the life of that cache."""

block_bytes_min: Final = 512
"""Capacity of a block that is opened for a small append."""
block_overhead_bytes: Final = 832
"""Memory that a block and its index entry take, whatever its capacity: measured on blocks of 100 B."""
block_bytes_max: Final = 1024 * 1024
"""Capacity of the largest block; longer data is spread over several."""


class CacheStorage(Protocol):
    """Blocks of bytes. Called from one event loop; no method waits.

    A block is filled from its start and never changed where it is filled: a view that ``get`` handed out stays valid
    and keeps its bytes for as long as somebody holds it, also after ``delete``. Nothing is reused or moved in place;
    memory goes back when the last view is gone. The budget counts what is held: the capacity of every block, filled or
    not, what an adopted buffer keeps, and ``block_overhead_bytes`` for each. It is the caller's to keep (see
    ``cache/manager.py``): no insert is ever refused, since what is not in Tier 2 yet must be kept.
    """

    @property
    def bytes_max(self) -> int:
        """The budget."""
        ...

    @property
    def bytes_used(self) -> int:
        """Capacity and overhead of all blocks that were not deleted."""
        ...

    @property
    def block_count(self) -> int: ...

    def insert(self, data: Sequence[Buffer], capacity: int = 0) -> CacheAddress:
        """Copy the joined buffers, once, into a new block of ``max(capacity, their length)`` bytes."""
        ...

    def adopt(self, data: Buffer) -> CacheAddress:
        """A full block made of a buffer that nobody changes any more, without a copy. It holds all memory that the
        buffer keeps (``kept_bytes``)."""
        ...

    def room(self, address: CacheAddress) -> int:
        """Bytes that ``extend`` may still add to the block."""
        ...

    def bytes_held(self, address: CacheAddress) -> int:
        """The block's part of ``bytes_used``. Unknown address: an invariant violation."""
        ...

    def extend(self, address: CacheAddress, data: Sequence[Buffer]) -> None:
        """Copy the joined buffers behind what is filled; they must fit into ``room``."""
        ...

    def get(self, address: CacheAddress, offset: int, length: int) -> memoryview:
        """A read-only view of filled bytes. Unknown address or unfilled bytes: an invariant violation."""
        ...

    def delete(self, address: CacheAddress) -> None:
        """Drop the cache's reference."""
        ...

    def close(self) -> None:
        """Drop all references."""
        ...
