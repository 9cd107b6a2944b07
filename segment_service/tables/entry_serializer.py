"""Encodes the log of a table segment: one record for each put and each removal.

Record, big-endian::

    u8 format (0) | i32 key length | i32 value length (-1: removal) | i64 version | key | value

17 + key + value bytes for a put, 17 + key for a removal: the sizes of a real table segment
(docs/wire-protocol.md 2.2), so that versions, which are offsets, come out the same. The version field holds
``NO_VERSION`` for a record whose version is its own offset, and the original version in a record that the compactor
copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.model.table_limits import key_bytes_max, value_bytes_max
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.table_store import NO_VERSION

_format: Final = 0
_header: Final = struct.Struct(">Biiq")
_removal: Final = -1

record_header_bytes: Final = _header.size
record_bytes_max: Final = record_header_bytes + key_bytes_max + value_bytes_max


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A record as found in the log. ``value`` is ``None`` for a removal; ``offset`` is the record's own."""

    offset: int
    key: bytes
    value: memoryview | None
    version: int

    @property
    def size(self) -> int:
        return record_size(len(self.key), None if self.value is None else len(self.value))


def record_size(key_length: int, value_length: int | None) -> int:
    """Bytes of one record; ``None`` for a removal."""
    return record_header_bytes + key_length + (value_length or 0)


def value_offset(record_offset: int, key_length: int) -> int:
    """The offset in the segment at which the value of a record begins."""
    return record_offset + record_header_bytes + key_length


def serialize_put(key: bytes, value: bytes, version: int = NO_VERSION) -> bytes:
    return b"".join((_header.pack(_format, len(key), len(value), version), key, value))


def serialize_removal(key: bytes) -> bytes:
    return _header.pack(_format, len(key), _removal, NO_VERSION) + key


def parse_records(data: Buffer, offset: int) -> Iterator[TableRecord]:
    """The whole records in ``data``, which begins at a record's start at ``offset`` of the segment; an unfinished
    last one is left out. ``DataCorruption`` for bytes that are no record."""
    view = memoryview(data)
    position = 0
    while position + record_header_bytes <= len(view):
        format_, key_length, value_length, version = _header.unpack_from(view, position)
        is_sane = format_ == _format and 0 < key_length <= key_bytes_max and _removal <= value_length <= value_bytes_max
        if not is_sane:
            raise DataCorruption(f"no table record at offset {offset + position} (format {format_}, key {key_length})")
        key_start = position + record_header_bytes
        value_start = key_start + key_length
        end = value_start + max(0, value_length)
        if end > len(view):
            return
        record_offset = offset + position
        yield TableRecord(
            record_offset,
            bytes(view[key_start:value_start]),
            None if value_length == _removal else view[value_start:end],
            record_offset if version == NO_VERSION else version,
        )
        position = end
