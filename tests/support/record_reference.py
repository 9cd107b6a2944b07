"""Packs and unpacks one record after docs/records.md, in plain Python: the reference for the vectorised code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

Header = tuple[str, bytes | None]

_head = struct.Struct(">BBBqII")


@dataclass(frozen=True)
class PlainRecord:
    """A record; ``timestamp`` is in microseconds since 1970."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] | None = None
    timestamp: int | None = None


def pack(record: PlainRecord) -> bytes:
    headers = b"" if record.headers is None else _packed(record.headers)
    present = (
        (record.key is not None)
        | (record.value is not None) << 1
        | (record.headers is not None) << 2
        | (record.timestamp is not None) << 3
    )
    key, value = record.key or b"", record.value or b""
    return _head.pack(0xE7, 2, present, record.timestamp or 0, len(key), len(headers)) + key + headers + value


def _packed(headers: tuple[Header, ...]) -> bytes:
    lengths = b"".join(
        struct.pack(">Ii", len(name.encode()), -1 if value is None else len(value)) for name, value in headers
    )
    return (
        struct.pack(">I", len(headers)) + lengths + b"".join(name.encode() + (value or b"") for name, value in headers)
    )


def unpack(event: bytes) -> PlainRecord:
    """``ValueError`` for bytes that are no record."""
    if len(event) < _head.size:
        raise ValueError("too short")
    magic, version, present, timestamp, key_bytes, headers_bytes = _head.unpack_from(event)
    if (magic, version) != (0xE7, 2) or present > 15:
        raise ValueError("another form")
    key_end = _head.size + key_bytes
    value_at = key_end + headers_bytes
    parts = event[_head.size : key_end], event[value_at:], event[key_end:value_at], timestamp
    if value_at > len(event) or any(part and not present & 1 << bit for bit, part in enumerate(parts)):
        raise ValueError("lengths")
    return PlainRecord(
        parts[1] if present & 2 else None,
        parts[0] if present & 1 else None,
        _unpacked(parts[2]) if present & 4 else None,
        timestamp if present & 8 else None,
    )


def _unpacked(section: bytes) -> tuple[Header, ...]:
    if len(section) < 4 or len(section) < 4 + 8 * (count := struct.unpack_from(">I", section)[0]):
        raise ValueError("headers")
    position, headers = 4 + 8 * count, []
    for index in range(count):
        name_bytes, value_bytes = struct.unpack_from(">Ii", section, 4 + 8 * index)
        if value_bytes < -1:
            raise ValueError("length of a header")
        middle = position + name_bytes
        end = middle + max(value_bytes, 0)
        headers.append((section[position:middle].decode(), section[middle:end] if value_bytes >= 0 else None))
        position = end
    if position != len(section):
        raise ValueError("headers")
    return tuple(headers)
