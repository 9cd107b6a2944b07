"""Encodes the bytes of a chunk: blocks of data, each followed by its checksum.

Bytes::

    64 KiB of data, 4s checksum      for every whole block
    the rest of the data, 4s checksum     the last block, unless it is whole or the chunk is empty

So the data's offset ``n`` lies at ``n + 4 * (n // 65536)``, a ranged read takes whole blocks in one request, and
nothing but the blocks that are read need be known. A block's checksum (big-endian) is the CRC32C of its data,
exclusive-or the CRC32C of the object's name and the block's number: a block at another place, and an object under
another name, fail. The checksum of the whole, kept in the manifest, is the CRC32C of the plain checksums of all blocks:
every byte of data is looked at once.
"""

from __future__ import annotations

import asyncio
import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.checksums import checksum_of

block_bytes: Final = 64 << 10
"""Bytes of data in one block; stored in chunks and never changed. Also the most that a small read reads in vain."""

checksum_bytes: Final = 4
"""Bytes of a checksum behind each block."""

stored_block_bytes: Final = block_bytes + checksum_bytes
"""Bytes of a whole block in the object."""

checksums_per_turn: Final = 16
"""Blocks that are checksummed before others get their turn of the event loop (1 MiB)."""

_CRC = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")


class ChunkForm(enum.IntEnum):
    """The way in which a chunk's bytes are stored; its manifest names it."""

    RAW = 0
    """Data only, nothing can be checked: what manifests of version 1 list."""
    BLOCKS = 1
    """As this module says."""


@dataclass(frozen=True, slots=True)
class CutData:
    """Data cut into blocks, without a copy."""

    blocks: list[list[memoryview]]
    checksums: list[int]
    """The plain CRC32C of each block."""

    @property
    def checksum(self) -> int:
        """The checksum of the whole."""
        return whole_checksum(self.checksums)

    def named(self, name: str) -> list[Buffer]:
        """The bytes of the object with this name."""
        stored = memoryview(_at_places(name, self.checksums))
        buffers: list[Buffer] = []
        for number, block in enumerate(self.blocks):
            buffers.extend(block)
            buffers.append(stored[number * checksum_bytes : (number + 1) * checksum_bytes])
        return buffers


async def cut(data: Sequence[Buffer]) -> CutData:
    """Cut data into blocks and checksum each, with others getting their turn in between."""
    blocks = _blocks(data)
    checksums: list[int] = []
    for first in range(0, len(blocks), checksums_per_turn):
        if first:
            await asyncio.sleep(0)
        checksums += [checksum_of(block) for block in blocks[first : first + checksums_per_turn]]
    return CutData(blocks, checksums)


def _blocks(data: Sequence[Buffer]) -> list[list[memoryview]]:
    blocks: list[list[memoryview]] = []
    room = 0
    for buffer in data:
        view = memoryview(buffer).cast("B")
        if room and len(view):  # in the block that is begun
            blocks[-1].append(view[:room])
        blocks += [[view[begin : begin + block_bytes]] for begin in range(room, len(view), block_bytes)]
        room = (room - len(view)) % block_bytes
    return blocks


def whole_checksum(checksums: Sequence[int]) -> int:
    """The checksum of a whole chunk, made of those of its blocks."""
    return crc32c(struct.pack(f">{len(checksums)}I", *checksums))


def stored_length(length: int) -> int:
    """The length of the object that holds ``length`` bytes of data."""
    return length + checksum_bytes * -(-length // block_bytes)


@dataclass(frozen=True, slots=True)
class BlockRange:
    """The blocks of a chunk that hold a stretch of its data, and where they lie in the object."""

    first: int
    end: int
    """The number of the first block behind them."""
    stored_offset: int
    stored_length: int

    @classmethod
    def around(cls, offset: int, length: int, chunk_length: int) -> BlockRange:
        """The blocks around [offset, offset + length) of a chunk with ``chunk_length`` bytes of data."""
        first, end = offset // block_bytes, -(-(offset + length) // block_bytes)
        begin = first * stored_block_bytes
        return cls(first, end, begin, min(end * stored_block_bytes, stored_length(chunk_length)) - begin)


@dataclass(frozen=True, slots=True)
class WrongBlock:
    """A block that is not what was stored."""

    number: int
    expected: int
    found: int


def unfilled(length: int) -> memoryview:
    """Makes a buffer of this length, which is not cleared."""
    return np.empty(length, dtype=np.uint8).data


def check_blocks(name: str, first: int, skipped: int, target: memoryview, stored: bytes) -> list[int] | WrongBlock:
    """Check blocks as they came from the object, and fill ``target`` with their data behind the first ``skipped``
    bytes of it. Each block is copied while the processor still has it at hand from its check.

    Returns the plain checksums, or the first block that is wrong; then ``target`` has nothing to be used. ``first``:
    the number of the first block.
    """
    seed = crc32c(name.encode())
    view = memoryview(stored)
    checksums: list[int] = []
    filled = 0
    for number, begin in enumerate(range(0, len(view), stored_block_bytes), first):
        block = view[begin : begin + stored_block_bytes]
        piece = block[:-checksum_bytes]
        checksum = crc32c(piece)
        expected = _CRC.unpack(block[-checksum_bytes:])[0] ^ _place(seed, number)
        if checksum != expected:
            return WrongBlock(number, expected, checksum)
        checksums.append(checksum)
        wanted = piece[skipped : skipped + len(target) - filled]
        target[filled : filled + len(wanted)] = wanted
        filled += len(wanted)
        skipped = 0
    check(filled == len(target), "blocks of a chunk are short", filled=filled, wanted=len(target))
    return checksums


def _place(seed: int, number: int) -> int:
    """The value that makes a checksum valid in one place only."""
    return crc32c(_NUMBER.pack(number), seed)


def _at_places(name: str, checksums: Sequence[int]) -> bytes:
    """The checksums as they are stored, each ``checksum_bytes``, of the first blocks of an object."""
    first = np.uint32(_place(crc32c(name.encode()), 0))
    numbers = _number_marks((len(checksums) - 1).bit_length())[: len(checksums)]
    return (np.array(checksums, dtype=np.uint32) ^ first ^ numbers).astype(">u4").tobytes()


@cache
def _number_marks(bits: int) -> npt.NDArray[np.uint32]:
    """``_place`` of the numbers below ``2**bits``, exclusive-or that of 0: it is the same whatever the seed is, and of
    a number that of its bits together, since a CRC is linear."""
    marks = np.zeros(1, dtype=np.uint32)
    for bit in range(bits):
        mark = np.uint32(_place(0, 1 << bit) ^ _place(0, 0))
        marks = np.concatenate((marks, marks ^ mark))
    return marks
