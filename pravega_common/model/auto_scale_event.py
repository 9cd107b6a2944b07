"""Defines the traffic report of a segment, which stores write to the controllers' request stream.

See docs/wire-protocol.md 6.6.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from pravega_common.compact_numbers import ByteReader, read_compact_int, write_compact_int
from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.hashing import position_of_key
from pravega_common.names import (
    REQUEST_STREAM,
    SYSTEM_SCOPE,
    scoped_name,
    segment_id,
    segment_id_max,
    segment_name,
    validate_scope_name,
    validate_stream_name,
)

AUTO_SCALE_TYPE: Final = 2
"""The type of this event among the events of a controller."""
splits_max: Final = 2**30 - 2
"""The largest number of splits that the format holds."""
request_stream_segments: Final = 2
"""Segments of the request stream, in epoch 0. It is never scaled, so a store finds them without a controller."""

_HEADER = struct.Struct(">BBBBBi")
_FORMAT, _VERSION, _REVISION = 0, 0, 0
_SEGMENT = struct.Struct(">qBq")
_END = struct.Struct(">?q")


class ScaleDirection(enum.IntEnum):
    UP = 0
    """The segment is hot: it shall be split."""
    DOWN = 1
    """The segment is cold: it may be merged with a cold neighbour."""


@dataclass(frozen=True, slots=True)
class AutoScaleEvent:
    """The report that one segment is hot or cold. ``InvalidArgument`` for values that the format does not hold."""

    scope: str
    stream: str
    segment_id: int
    direction: ScaleDirection
    timestamp_ms: int
    """When the store reported it, in ms since 1970."""
    splits: int
    """How many segments would carry the traffic of a hot one; 0 for a cold one."""
    is_silent: bool
    """Whether a cold segment had no traffic at all for so long that its store stops watching it: no report follows."""
    request_id: int
    """Random, in the range of a signed 64-bit integer; the same in every copy of one report."""

    def __post_init__(self) -> None:
        validate_scope_name(self.scope)
        validate_stream_name(self.stream)
        for name, value, low, high in (
            ("segment id", self.segment_id, 0, segment_id_max),
            ("timestamp", self.timestamp_ms, 0, 2**63 - 1),
            ("number of splits", self.splits, 0, splits_max),
            ("request id", self.request_id, -(2**63), 2**63 - 1),
        ):
            if not low <= value <= high:
                raise InvalidArgument(f"{name} {value} of a traffic report must be in {low}..{high}")

    @property
    def routing_key(self) -> str:
        """``scope/stream``: the reports of one stream are read in the order in which they were written."""
        return scoped_name(self.scope, self.stream)

    @property
    def request_segment(self) -> str:
        """The segment of the request stream that the routing key leads to."""
        number = int(position_of_key(self.routing_key) * request_stream_segments)
        return segment_name(SYSTEM_SCOPE, REQUEST_STREAM, segment_id(number, 0))

    def to_bytes(self) -> bytes:
        """The event as Pravega 0.13 writes it: revision 0 of version 0."""
        body = b"".join(
            (
                _name_bytes(self.scope),
                _name_bytes(self.stream),
                _SEGMENT.pack(self.segment_id, self.direction, self.timestamp_ms),
                write_compact_int(self.splits),
                _END.pack(self.is_silent, self.request_id),
            )
        )
        return _HEADER.pack(_FORMAT, AUTO_SCALE_TYPE, _VERSION, 1, _REVISION, len(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> AutoScaleEvent:
        """The event of its bytes; revisions that a later Pravega adds are ignored.

        ``DataCorruption`` for an event of another type or version, and for bytes that hold no event.
        """
        if len(data) < _HEADER.size:
            raise DataCorruption(f"a traffic report of {len(data)} bytes is shorter than its header")
        kind, event_type, version, revisions, revision, length = _HEADER.unpack_from(data)
        if (kind, event_type, version, revision) != (_FORMAT, AUTO_SCALE_TYPE, _VERSION, _REVISION) or revisions < 1:
            raise DataCorruption(
                f"format {kind}, type {event_type}, version {version}, revision {revision} is no traffic report "
                f"that this version reads (format {_FORMAT}, type {AUTO_SCALE_TYPE}, version {_VERSION})"
            )
        if not 0 <= length <= len(data) - _HEADER.size:
            raise DataCorruption(f"a traffic report's body of {length} bytes in {len(data) - _HEADER.size}")
        reader = ByteReader(memoryview(data)[: _HEADER.size + length], _HEADER.size)
        try:
            scope, stream = _read_name(reader), _read_name(reader)
            segment_id, direction, timestamp_ms = _SEGMENT.unpack(reader.take(_SEGMENT.size))
            splits = read_compact_int(reader)
            is_silent, request_id = _END.unpack(reader.take(_END.size))
            return cls(
                scope, stream, segment_id, ScaleDirection(direction), timestamp_ms, splits, is_silent, request_id
            )
        except (InvalidArgument, ValueError) as error:
            raise DataCorruption(f"a traffic report that no store writes: {error}") from error


def _name_bytes(name: str) -> bytes:
    raw = name.encode("ascii")  # Names have no other characters.
    return struct.pack(">H", len(raw)) + raw


def _read_name(reader: ByteReader) -> str:
    return reader.take(reader.number(2)).decode("ascii")
