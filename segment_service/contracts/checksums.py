"""Computes and joins the CRC32C of bytes that lie in several buffers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, TypeAlias

from crc32c import crc32c

from segment_service.contracts.buffer import Buffer

_digit_bits: Final = 4
"""Bits of a digit of a length; a checksum is moved once for each digit that is not 0."""
_digit_max: Final = (1 << _digit_bits) - 1

_Table: TypeAlias = "array[int]"
"""What each of the 256 values of a checksum's lowest byte becomes, then those of the next ones. An array has them side
by side: behind a megabyte that was moved they come from memory, a line of the processor's cache at a time."""


def checksum_of(buffers: Iterable[Buffer], before: int = 0) -> int:
    """The CRC32C of the buffers, one behind the other, behind bytes with the checksum ``before``."""
    checksum = before
    for buffer in buffers:
        checksum = crc32c(buffer, checksum)
    return checksum


def joined_checksum(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two stretches of bytes, of which the second has ``second_bytes``, by their checksums alone.

    A checksum is linear: the first one is moved past the second stretch as if that were zeros, a digit of the length at
    a time, and the second one is added. 3 to 15 µs, by what the processor's cache holds; to look at a megabyte once
    more takes 36 to 70.
    """
    position = 0
    while second_bytes >> position:
        if zeros := second_bytes & _digit_max << position:
            first = _moved(first, _table(zeros))
        position += _digit_bits
    return first ^ second


def _moved(checksum: int, table: _Table) -> int:
    return (
        table[checksum & 255]
        ^ table[256 + (checksum >> 8 & 255)]
        ^ table[512 + (checksum >> 16 & 255)]
        ^ table[768 + (checksum >> 24)]
    )


@cache
def _table(zeros: int) -> _Table:
    """Moves a checksum past so long a stretch of zeros; 4 KiB, for each digit at each position that comes."""
    if zeros == 1:
        return _table_of(lambda checksum: crc32c(b"\0", checksum) ^ crc32c(b"\0"))
    lowest = zeros & -zeros
    part = zeros >> 1 if zeros == lowest else lowest
    one, other = _table(part), _table(zeros - part)
    return _table_of(lambda checksum: _moved(_moved(checksum, one), other))


def _table_of(move: Callable[[int], int]) -> _Table:
    """The table of a linear function of a checksum."""
    images = [move(1 << bit) for bit in range(32)]
    return array("I", [value for first in range(0, 32, 8) for value in _combinations(images[first : first + 8])])


def _combinations(images: list[int]) -> list[int]:
    """For each number of as many bits, the images of its bits together."""
    values = [0]
    for one in images:
        values += [value ^ one for value in values]
    return values
