"""Packs integers in as few bytes as their value needs, as Pravega's versioned serializer does.

See docs/wire-protocol.md 6.5.

The upper bits of the first byte tell the length. Big-endian throughout.
"""

from __future__ import annotations

from pravega_common.errors import DataCorruption, InvalidArgument


class ByteReader:
    """A cursor over bytes; raises ``DataCorruption`` past the end."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data = memoryview(data)
        self.position = position

    @property
    def remaining(self) -> int:
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.remaining:
            raise DataCorruption(f"{count} bytes wanted at byte {self.position}, {self.remaining} remain")
        start = self.position
        self.position += count
        return bytes(self._data[start : self.position])

    def peek(self) -> int:
        if not self.remaining:
            raise DataCorruption(f"a number is missing at byte {self.position}")
        return self._data[self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def write_compact_int(value: int) -> bytes:
    """0 ≤ value < 2^30 - 1 in 1, 2 or 4 bytes."""
    if 0 <= value <= 0x7F:
        return bytes((value,))
    if 0 <= value <= 0x3FFF:
        return (value | 0x8000).to_bytes(2, "big")
    if 0 <= value < (1 << 30) - 1:
        return (value | 0xC0000000).to_bytes(4, "big")
    raise InvalidArgument(f"compact int {value} must be in 0..{(1 << 30) - 2}")


def read_compact_int(reader: ByteReader) -> int:
    first = reader.peek()
    if first < 0x80:
        return reader.number(1)
    if first < 0xC0:
        return reader.number(2) & 0x3FFF
    return reader.number(4) & 0x3FFFFFFF


def write_compact_long(value: int) -> bytes:
    """0 ≤ value < 2^62 in 1, 2, 4 or 8 bytes."""
    for size, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if 0 <= value < 1 << 8 * size - 2:
            return (value | mark << 8 * size - 2).to_bytes(size, "big")
    raise InvalidArgument(f"compact long {value} must be in 0..{(1 << 62) - 1}")


def read_compact_long(reader: ByteReader) -> int:
    size: int = 1 << (reader.peek() >> 6)
    return reader.number(size) & (1 << 8 * size - 2) - 1


def write_compact_signed_long(value: int) -> bytes:
    """-2^61 ≤ value < 2^61 in 1, 2, 4 or 8 bytes; a negative value is stored as -value - 1 with the top bit set."""
    sign, magnitude = (0, value) if value >= 0 else (4, -value - 1)
    for size, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if magnitude < 1 << 8 * size - 3:
            return (magnitude | (sign | mark) << 8 * size - 3).to_bytes(size, "big")
    raise InvalidArgument(f"compact signed long {value} must be in {-(1 << 61)}..{(1 << 61) - 1}")


def read_compact_signed_long(reader: ByteReader) -> int:
    first = reader.peek()
    size = 1 << (first >> 5 & 3)
    magnitude = reader.number(size) & (1 << 8 * size - 3) - 1
    return -magnitude - 1 if first & 0x80 else magnitude
