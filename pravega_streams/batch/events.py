"""Reads the events between two stream cuts one by one, for scripts and tests (Spark reads whole columns)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption, SegmentNotFound, SegmentTruncated, StreamNotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_name
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.client import StreamClient
from pravega_streams.errors import EventsTruncated

window_bytes: Final = 4 * 1024 * 1024
_HEADER = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """``offset`` is where the event's header starts in its segment."""

    segment_id: int
    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        """The offset behind the event."""
        return self.offset + _HEADER.size + len(self.data)


def read_events(
    client: StreamClient,
    scope: str,
    stream: str,
    start: SegmentOffsets | None = None,
    end: SegmentOffsets | None = None,
) -> Iterator[StoredEvent]:
    """Events between the cuts (default head to tail), segment by segment, predecessors before successors.

    ``EventsTruncated`` where events between the cuts were truncated before they were read.
    """
    first = client.head_cut(scope, stream) if start is None else start
    last = client.tail_cut(scope, stream) if end is None else end
    # An id's upper half is the epoch that made the segment, so ascending ids never put a successor first.
    for segment_id in sorted(client.controller.segments_between(scope, stream, first, last)):
        name = segment_name(scope, stream, segment_id)
        offset = max(0, first.get(segment_id, 0))  # Below 0: not reached yet.
        try:
            to_offset = max(0, last[segment_id]) if segment_id in last else client.segments.info(name).length
            for event in read_segment(client, name, segment_id, offset, to_offset):
                yield event
                offset = event.next_offset
        except SegmentTruncated as error:
            raise EventsTruncated(name, offset, error.start_offset) from error
        except SegmentNotFound as error:
            if not client.controller.stream_exists(scope, stream):
                raise StreamNotFound(f"stream {scope}/{stream} was deleted while it was read") from error
            raise EventsTruncated(name, offset, None) from error


def read_segment(client: StreamClient, name: str, segment_id: int, start: int, end: int) -> Iterator[StoredEvent]:
    """Events of one segment; both offsets must be event boundaries."""
    sockets = ReadSockets()
    reader = RangeReader(name, start, end, client.segments.endpoints, sockets)
    held, offset = b"", start
    try:
        while offset < end:
            window = memoryview(bytearray(min(window_bytes, end - reader.position)))
            held += window[: reader.read_into(window)]
            position = 0
            while len(held) - position >= _HEADER.size:
                kind, length = _HEADER.unpack_from(held, position)
                if kind != 0 or length < 0:
                    raise DataCorruption(f"{name}: no event header at offset {offset}")
                if len(held) - position - _HEADER.size < length:
                    break
                body = position + _HEADER.size
                yield StoredEvent(segment_id, offset, held[body : body + length])
                position = body + length
                offset += _HEADER.size + length
            held = held[position:]
            if not len(window) and offset < end:
                raise DataCorruption(f"{name}: offset {end} is not the end of an event")
    finally:
        reader.close()
        sockets.close()
