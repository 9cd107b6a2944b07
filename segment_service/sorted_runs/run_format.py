"""Encodes one file of a sorted run: blocks of entries, then the tail that says where they are.

Bytes (big-endian)::

    block ...
    tail:
        bits of the filter (key_filter.py)
        for each block: Q offset, I length, H length of its first key, the key
        footer: 4s magic "PVSR", H version, H reserved, I entries, I tombstones, I blocks,
                I bytes of the filter, I CRC32C of the tail before

    block: I count, count x H length of a key, count x I length of a value, the keys, the values, I CRC32C

Keys rise strictly through the file. A value of the length 0xFFFFFFFF is a tombstone: the key is absent, whatever older
runs say. A block has at most ``block_bytes``, or a single entry. Each checksum is exclusive-or the CRC32C of the
object's name and the offset in it: bytes of another object, or at another place, fail.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check

VERSION: Final = 1
block_bytes: Final = 16 << 10
"""Bytes of a block without its checksum: decoding one takes some tens of microseconds."""
entry_overhead_bytes: Final = 6
"""Bytes that a block spends on an entry beside key and value."""

_MAGIC: Final = b"PVSR"
_COUNT: Final = struct.Struct(">I")
_CRC: Final = struct.Struct(">I")
_BLOCK_REF: Final = struct.Struct(">QIH")
_FOOTER: Final = struct.Struct(">4sHHIIIII")
_PLACE: Final = struct.Struct(">Q")
_TOMBSTONE: Final = 0xFFFFFFFF

checksum_bytes: Final = _CRC.size
block_overhead_bytes: Final = _COUNT.size + _CRC.size


@dataclass(frozen=True, slots=True)
class RunBlock:
    """A part of a run: keys in order, each with its value, ``None`` for a tombstone."""

    keys: list[bytes]
    values: list[bytes | None]


@dataclass(frozen=True, slots=True)
class Tail:
    """The tail of a file: where its blocks are, and which keys may be in them."""

    first_keys: list[bytes]
    """The first key of each block."""
    places: list[tuple[int, int]]
    """Offset and length of each block."""
    entries: int
    tombstones: int
    filter: bytes


def block_body(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """A block without its checksum."""
    count = len(keys)
    lengths = [_TOMBSTONE if value is None else len(value) for value in values]
    return b"".join(
        (
            _COUNT.pack(count),
            struct.pack(f">{count}H", *map(len, keys)),
            struct.pack(f">{count}I", *lengths),
            *keys,
            *(value for value in values if value is not None),
        )
    )


def block_checksum(body_checksum: int, name: str, offset: int) -> bytes:
    """The bytes that follow the block at this place; ``body_checksum`` is the plain CRC32C of its body."""
    return _CRC.pack(body_checksum ^ _place(name, offset))


def decode_block(data: bytes, name: str, offset: int) -> RunBlock:
    """The block that was read from this place. ``DataCorruption`` if a byte is wrong."""
    where = f"{name}, offset {offset}"
    body = _checked(data, name, offset, "block")
    try:
        (count,) = _COUNT.unpack_from(body)
        key_lengths = struct.unpack_from(f">{count}H", body, _COUNT.size)
        value_lengths = struct.unpack_from(f">{count}I", body, _COUNT.size + 2 * count)
    except struct.error as error:
        raise DataCorruption(f"{where}: a block of {len(data)} bytes contradicts itself: {error}") from error
    position = _COUNT.size + 6 * count
    ends = list(accumulate(key_lengths, initial=position))
    keys = [body[begin:end] for begin, end in pairwise(ends)]
    position = ends[-1]
    values: list[bytes | None] = []
    for length in value_lengths:
        if length == _TOMBSTONE:
            values.append(None)
        else:
            values.append(body[position : position + length])
            position += length
    if position != len(body) or not count:
        raise DataCorruption(f"{where}: a block of {len(data)} bytes has {count} entries that take {position}")
    return RunBlock(keys, values)


def encode_tail(tail: Tail, name: str, offset: int) -> bytes:
    """The tail as it follows the blocks, at ``offset`` of the object."""
    check(len(tail.first_keys) == len(tail.places) > 0, "a run without blocks", name=name)
    refs = [_BLOCK_REF.pack(*place, len(key)) + key for key, place in zip(tail.first_keys, tail.places, strict=True)]
    body = b"".join((tail.filter, *refs))
    counts = (tail.entries, tail.tombstones, len(tail.places), len(tail.filter))
    footer = _FOOTER.pack(_MAGIC, VERSION, 0, *counts, 0)[: -_CRC.size]
    body += footer
    return body + _CRC.pack(crc32c(body) ^ _place(name, offset))


def decode_tail(data: bytes, name: str, offset: int) -> Tail:
    """``DataCorruption`` if a byte is wrong, or the version is not known."""
    if len(data) < _FOOTER.size:
        raise DataCorruption(f"{name}: a tail of {len(data)} bytes is shorter than any")
    magic, version, _, entries, tombstones, blocks, filter_bytes, _ = _FOOTER.unpack_from(
        data, len(data) - _FOOTER.size
    )
    if magic == _MAGIC and version != VERSION:
        raise DataCorruption(
            f"{name} has version {version}, this software reads {VERSION}: use the version that wrote it"
        )
    body = _checked(data, name, offset, "tail")
    first_keys: list[bytes] = []
    places: list[tuple[int, int]] = []
    position = filter_bytes
    try:
        for _ in range(blocks):
            begin, length, key_length = _BLOCK_REF.unpack_from(body, position)
            position += _BLOCK_REF.size
            first_keys.append(body[position : position + key_length])
            places.append((begin, length))
            position += key_length
    except struct.error as error:
        raise DataCorruption(f"{name}: its tail contradicts itself: {error}") from error
    if magic != _MAGIC or position != len(data) - _FOOTER.size or not blocks:
        raise DataCorruption(f"{name}: its tail contradicts itself: {blocks} blocks end at {position}")
    return Tail(first_keys, places, entries, tombstones, body[:filter_bytes])


def _checked(data: bytes, name: str, offset: int, part: str) -> bytes:
    """The bytes without their checksum."""
    body = data[: -_CRC.size]
    expected = _CRC.unpack(data[-_CRC.size :])[0] ^ _place(name, offset) if len(data) > _CRC.size else None
    actual = crc32c(body)
    if actual != expected:
        shown = "none" if expected is None else f"{expected:#010x}"
        raise DataCorruption(f"{name}, offset {offset}: a {part} has the checksum {actual:#010x}, expected {shown}")
    return body


def _place(name: str, offset: int) -> int:
    return crc32c(_PLACE.pack(offset), crc32c(name.encode()))
