"""Keeps the blocks of the cache in memory: one buffer object for each, freed by reference counting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pravega_common.invariants import check, unreachable
from pravega_common.services.cache_size import cache_bytes_least
from segment_service.contracts.buffer import Buffer, kept_bytes
from segment_service.contracts.cache_storage import CacheAddress, block_overhead_bytes


class _Block:
    """``view`` is private, and writable unless the block was adopted. One view a block: with small blocks
    its size counts. ``held``: bytes of memory."""

    __slots__ = ("capacity", "filled", "held", "view")

    def __init__(self, buffer: Buffer, filled: int, held: int) -> None:
        self.view = memoryview(buffer)
        self.capacity = len(buffer)
        self.filled = filled
        self.held = held


class InMemoryCacheStorage:
    """A ``CacheStorage`` of blocks that are allocated at full capacity and filled once from the start."""

    def __init__(self, bytes_max: int = cache_bytes_least) -> None:
        check(bytes_max > 0, "a cache needs a budget above zero", bytes_max=bytes_max)
        self._bytes_max = bytes_max
        self._bytes_used = 0
        self._blocks: dict[CacheAddress, _Block] = {}
        self._next_address = 0

    @property
    def bytes_max(self) -> int:
        return self._bytes_max

    @property
    def bytes_used(self) -> int:
        return self._bytes_used

    @property
    def block_count(self) -> int:
        return len(self._blocks)

    def insert(self, data: Sequence[Buffer], capacity: int = 0) -> CacheAddress:
        length = sum(map(len, data))
        # Not cleared first: nothing beyond what is filled is ever given out.
        capacity = max(capacity, length)
        block = _Block(np.empty(capacity, dtype=np.uint8).data, 0, capacity)
        address = self._add(block)
        self._fill(block, data)
        return address

    def adopt(self, data: Buffer) -> CacheAddress:
        return self._add(_Block(data, len(data), kept_bytes(data)))

    def room(self, address: CacheAddress) -> int:
        block = self._blocks[address]
        return block.capacity - block.filled

    def bytes_held(self, address: CacheAddress) -> int:
        block = self._blocks.get(address)
        if block is None:
            unreachable("a cache address without a block", address=address)
        return block.held + block_overhead_bytes

    def extend(self, address: CacheAddress, data: Sequence[Buffer]) -> None:
        self._fill(self._blocks[address], data)

    def get(self, address: CacheAddress, offset: int, length: int) -> memoryview:
        block = self._blocks.get(address)
        if block is None:
            unreachable("a cache address without a block", address=address)
        end = offset + length
        check(0 <= offset <= end <= block.filled, "a view beyond the filled bytes", offset=offset, length=length)
        return block.view[offset:end].toreadonly()

    def delete(self, address: CacheAddress) -> None:
        block = self._blocks.pop(address, None)
        if block is not None:
            self._bytes_used -= block.held + block_overhead_bytes

    def close(self) -> None:
        self._blocks.clear()
        self._bytes_used = 0

    def _add(self, block: _Block) -> CacheAddress:
        self._next_address += 1
        address = CacheAddress(self._next_address)
        self._blocks[address] = block
        self._bytes_used += block.held + block_overhead_bytes
        return address

    @staticmethod
    def _fill(block: _Block, data: Sequence[Buffer]) -> None:
        position = block.filled
        for buffer in data:
            end = position + len(buffer)
            check(end <= block.capacity, "more bytes than the block has room for", capacity=block.capacity, end=end)
            block.view[position:end] = buffer
            position = end
        block.filled = position
