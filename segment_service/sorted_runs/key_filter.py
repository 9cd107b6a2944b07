"""Implements a Bloom filter over keys: most keys that are absent cost no read of Tier 2."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

bits_per_key: Final = 12
"""With three hashes one absent key in about a hundred looks present. A multiple of 4, stored in runs."""

_HASHES: Final = struct.Struct(">III")


def empty_filter(count: int) -> bytearray:
    """A filter for ``count`` keys, without any yet."""
    return bytearray(max(1, (count * bits_per_key + 7) // 8))


def add_keys(bits: bytearray, keys: Iterable[bytes]) -> None:
    size = len(bits) * 8
    for key in keys:
        for number in _hashes(key):
            position = number % size
            bits[position >> 3] |= 1 << (position & 7)


def may_contain(bits: bytes | bytearray, key: bytes) -> bool:
    """Whether the filter was made of this key; wrongly true for one in about a hundred others."""
    size = len(bits) * 8
    for number in _hashes(key):
        position = number % size
        if not bits[position >> 3] & (1 << (position & 7)):
            return False
    return True


def _hashes(key: bytes) -> tuple[int, ...]:
    return _HASHES.unpack(hashlib.blake2b(key, digest_size=_HASHES.size).digest())
