"""Computes and joins the CRC32C of bytes that lie in several buffers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from crc32c import crc32c

from segment_service.contracts.buffer import Buffer

_Tables = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""For each byte of a checksum, what each of its 256 values becomes."""


def checksum_of(buffers: Iterable[Buffer], before: int = 0) -> int:
    """The CRC32C of the buffers, one behind the other, behind bytes with the checksum ``before``."""
    checksum = before
    for buffer in buffers:
        checksum = crc32c(buffer, checksum)
    return checksum


def joined_checksum(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two stretches of bytes, of which the second has ``second_bytes``, by their checksums alone.

    A checksum is linear: the first one is moved past the second stretch as if that were zeros, a power of two of them
    at a time, and the second one is added. Some 4 µs, where a megabyte takes ten times as long to be looked at again.
    """
    exponent = 0
    while second_bytes:
        if second_bytes & 1:
            first = _moved(first, _tables(exponent))
        second_bytes >>= 1
        exponent += 1
    return first ^ second


def _moved(checksum: int, tables: _Tables) -> int:
    lowest, low, high, highest = tables
    return lowest[checksum & 255] ^ low[checksum >> 8 & 255] ^ high[checksum >> 16 & 255] ^ highest[checksum >> 24]


@cache
def _tables(exponent: int) -> _Tables:
    """Tables that move a checksum past ``2**exponent`` zeros; 40 KiB, for each power of two that comes."""
    if exponent:
        half = _tables(exponent - 1)
        image = [_moved(_moved(1 << bit, half), half) for bit in range(32)]
    else:
        image = [crc32c(b"\0", 1 << bit) ^ crc32c(b"\0") for bit in range(32)]
    lowest, low, high, highest = (_combinations(image[first : first + 8]) for first in range(0, 32, 8))
    return lowest, low, high, highest


def _combinations(image: list[int]) -> tuple[int, ...]:
    """For each number of as many bits, the images of its bits together."""
    values = [0]
    for one in image:
        values += [value ^ one for value in values]
    return tuple(values)
