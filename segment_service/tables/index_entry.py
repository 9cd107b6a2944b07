"""Encodes the key index of a table as the entries of its sorted map.

Entries (big-endian)::

    "e" order key     the live record of a key: u8 format (1), q version, q offset, I length of the value,
                      H length of the key, ? whether the value follows, the key, the value if it follows
    "t"               the totals: u8 format (1), Q length of the log that the map covers, Q live keys,
                      Q bytes of their records

Every flush has the totals as of the same moment as its records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.tables.hasher import order_key_bytes
from segment_service.tables.key_index import Slot

FORMAT: Final = 1
value_stored_bytes_max: Final = 1024
"""Values up to this size are in the map, too, so that a page of an iteration is read from one place."""

_ENTRY: Final = struct.Struct(">BqqIH?")
_TOTALS: Final = struct.Struct(">BQQQ")
TOTALS_KEY: Final = b"t"


@dataclass(frozen=True, slots=True)
class Totals:
    """A table as of one flush of its index."""

    covered: int
    """Length of the table's log that the map covers, from offset 0."""
    keys: int
    live_bytes: int


def entry_key(order_key: bytes) -> bytes:
    return b"e" + order_key


def page_bound(
    stored: Sequence[tuple[bytes, bytes]], changed: Sequence[tuple[bytes, bytes]], count: int
) -> bytes | None:
    """The order key up to which entries of the map and changed keys, up to ``count`` of each, are all there are;
    ``None`` if they are all to the end."""
    bounds = [changed[-1][0]] if len(changed) == count else []
    if len(stored) == count and stored[-1][0] != TOTALS_KEY:
        bounds.append(stored[-1][0][1:])
    return min(bounds, default=None)


def entries_within(stored: Sequence[tuple[bytes, bytes]], bound: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """(order key, entry) of the entries of the map up to the bound."""
    for place, data in stored:
        if place != TOTALS_KEY and (bound is None or place[1:] <= bound):
            yield place[1:], data


def entry_bytes(key: bytes, slot: Slot | None) -> int:
    """Bytes of the entry of a key, about."""
    stored = 0 if slot is None or slot.value_length > value_stored_bytes_max else slot.value_length
    return _ENTRY.size + order_key_bytes + len(key) + stored


def encode_entry(key: bytes, slot: Slot) -> bytes:
    value = slot.value if slot.value_length <= value_stored_bytes_max else None
    head = _ENTRY.pack(FORMAT, slot.version, slot.offset, slot.value_length, len(key), value is not None)
    return b"".join((head, key, value or b""))


def decode_entry(data: bytes, table: str) -> tuple[bytes, Slot]:
    """The key and its live record. ``DataCorruption`` if the bytes are wrong."""
    if len(data) < _ENTRY.size or data[0] != FORMAT:
        raise DataCorruption(f"{table}: its index in Tier 2 has an entry of the unknown format {data[:1].hex()}")
    _, version, offset, value_length, key_length, has_value = _ENTRY.unpack_from(data)
    value_start = _ENTRY.size + key_length
    if len(data) != value_start + (value_length if has_value else 0):
        raise DataCorruption(f"{table}: its index in Tier 2 has an entry of {len(data)} bytes that contradicts itself")
    value = data[value_start:] if has_value else None
    return data[_ENTRY.size : value_start], Slot(version, offset, value_length, value)


def encode_totals(totals: Totals) -> bytes:
    return _TOTALS.pack(FORMAT, totals.covered, totals.keys, totals.live_bytes)


def decode_totals(data: bytes, table: str) -> Totals:
    """``DataCorruption`` if the bytes are wrong."""
    if len(data) != _TOTALS.size or data[0] != FORMAT:
        raise DataCorruption(f"{table}: its index in Tier 2 has totals of the unknown format {data[:1].hex()}")
    return Totals(*_TOTALS.unpack(data)[1:])
