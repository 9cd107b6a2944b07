"""Encodes and decodes watermarks as Pravega's clients read them (docs/controller-api.md 5).

Its versioned serializer puts a header before every record: format 0, version 0, the number of revisions, and for each
its id and the length of its data. All numbers are big-endian. A reader passes over revisions that it does not know.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.invariants import check
from pravega_common.names import segments_per_stream_max

_HEADER: Final = struct.Struct(">BBB")
_REVISION: Final = struct.Struct(">BI")
_TIMES: Final = struct.Struct(">qq")
_SEGMENT: Final = struct.Struct(">qdd")
_OFFSET: Final = struct.Struct(">q")
_U8, _U16, _U32 = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
_SEGMENT_RECORD_HEADER: Final = _HEADER.pack(0, 0, 1) + _REVISION.pack(0, _SEGMENT.size)

watermark_bytes_max: Final = (
    _HEADER.size
    + _REVISION.size
    + _TIMES.size
    + _U32.size
    + segments_per_stream_max * (len(_SEGMENT_RECORD_HEADER) + _SEGMENT.size + _OFFSET.size)
)
"""The encoded watermark of a stream with the most segments."""


@dataclass(frozen=True, slots=True)
class SegmentPosition:
    """An offset in a segment, with the key range that the segment holds."""

    segment_id: int
    key_start: float
    key_end: float
    offset: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """Tells readers at a position between which times the writers were. Times are the writers' own, mostly ms."""

    lower_time: int
    upper_time: int
    position: tuple[SegmentPosition, ...]
    """Covers the key space once, in the order of keys."""


def encode_watermark(watermark: Watermark) -> bytes:
    """The watermark as the payload of one event. ``InvalidArgument`` if it lies in more segments than a stream has."""
    count = len(watermark.position)
    check(watermark.lower_time <= watermark.upper_time, "a watermark's bounds are the wrong way round")
    check(count > 0, "a watermark without a position")
    if count > segments_per_stream_max:
        raise InvalidArgument(f"a watermark in {count} segments, at most {segments_per_stream_max} are possible")
    parts = [_TIMES.pack(watermark.lower_time, watermark.upper_time), _encode_compact(count)]
    for item in watermark.position:
        parts.append(_SEGMENT_RECORD_HEADER)
        parts.append(_SEGMENT.pack(item.segment_id, item.key_start, item.key_end))
        parts.append(_OFFSET.pack(item.offset))
    data = b"".join(parts)
    return _HEADER.pack(0, 0, 1) + _REVISION.pack(0, len(data)) + data


def decode_watermark(payload: bytes | bytearray | memoryview) -> Watermark:
    """``DataCorruption`` for bytes that are no watermark, or one of a version that is not known here."""
    data = memoryview(payload)
    try:
        body = _Input(_first_revision(_Input(data)))
        lower, upper = body.take(_TIMES)
        count = _decode_compact(body)
        if count > segments_per_stream_max or lower > upper:
            raise DataCorruption(f"a watermark of {count} segments and times from {lower} to {upper}")
        position = tuple(_decode_position(body) for _ in range(count))
    except struct.error as error:
        raise DataCorruption(f"a watermark ends after {len(data)} bytes: {error}") from error
    return Watermark(lower, upper, position)


class _Input:
    """Takes numbers from the front of a record."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values


def _first_revision(source: _Input) -> memoryview:
    """The data of revision 0; ``source`` then stands behind all revisions of the record."""
    form, version, revisions = source.take(_HEADER)
    if form != 0 or version != 0 or revisions < 1:
        raise DataCorruption(
            f"a record of format {form}, version {version} with {revisions} revisions; known are 0 and 0"
        )
    found: list[memoryview] = []
    for number in range(revisions):
        identifier, length = source.take(_REVISION)
        if identifier != number or length > len(source.data) - source.at:
            raise DataCorruption(f"revision {identifier} of {length} bytes, in a record of {len(source.data)} bytes")
        found.append(source.data[source.at : source.at + length])
        source.at += length
    return found[0]


def _decode_position(source: _Input) -> SegmentPosition:
    segment = _Input(_first_revision(source))
    identifier, low, high = segment.take(_SEGMENT)
    if identifier < 0 or not 0.0 <= low < high <= 1.0:
        raise DataCorruption(f"segment {identifier} with keys from {low} to {high} in a watermark")
    return SegmentPosition(identifier, low, high, source.take(_OFFSET)[0])


def _encode_compact(value: int) -> bytes:
    """A number in 1, 2 or 4 bytes, by its two highest bits."""
    if value < 0x80:
        return _U8.pack(value)
    if value < 0x4000:
        return _U16.pack(value | 0x8000)
    return _U32.pack(value | 0xC000_0000)


def _decode_compact(source: _Input) -> int:
    first = source.data[source.at] if source.at < len(source.data) else 0
    if first < 0x80:
        return int(source.take(_U8)[0])
    if first < 0xC0:
        return int(source.take(_U16)[0]) & 0x3FFF
    return int(source.take(_U32)[0]) & 0x3FFF_FFFF
