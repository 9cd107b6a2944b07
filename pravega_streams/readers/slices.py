"""Splits the bytes of a segment into events, which are views of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption, InvalidArgument

event_bytes_max: Final = 256 * 1024 * 1024
"""The largest event that is read; larger lengths stand for damage."""
header_bytes: Final = 8
_HEADER = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """An event of a segment. ``offset`` is that of its header; ``data`` is a view, ``bytes(event)`` copies it."""

    segment: str
    offset: int
    data: memoryview

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    @property
    def next_offset(self) -> int:
        """The offset behind the event."""
        return self.offset + header_bytes + len(self.data)


class SegmentSlice:
    """Bytes of one segment that a reader owns, and an iterator over the events in them.

    Events that were taken count as read when the slice is released to its reader.
    """

    def __init__(self, segment: str, start: int, data: memoryview) -> None:
        self.segment = segment
        self.start = start
        self._data = data
        self._at = 0

    def __iter__(self) -> SegmentSlice:
        return self

    def __next__(self) -> ReadEvent:
        end = end_of_event(self._data, self._at, self.segment, self.start)
        if end is None or end > len(self._data):
            raise StopIteration
        event = ReadEvent(self.segment, self.start + self._at, self._data[self._at + header_bytes : end])
        self._at = end
        return event

    @property
    def position(self) -> int:
        """The offset behind the last event that was taken."""
        return self.start + self._at

    def take_block(self) -> memoryview:
        """Take all events that are left at once, each with its header of eight bytes: zero and the length."""
        begin, data = self._at, self._data
        while (end := end_of_event(data, self._at, self.segment, self.start)) is not None and end <= len(data):
            self._at = end
        return data[begin : self._at]

    def move_to(self, offset: int) -> None:
        """Go back, or on, to an offset where an event begins or ends; ``InvalidArgument`` for another one, from which
        no event could be read any more."""
        end = self.start + len(self._data)
        if not self.start <= offset <= end:
            raise InvalidArgument(f"{self.segment}: offset {offset} is not in the slice from {self.start} to {end}")
        begin, wanted = 0, offset - self.start
        while begin < wanted:
            behind = end_of_event(self._data, begin, self.segment, self.start)
            if behind is None or behind > wanted:
                raise InvalidArgument(
                    f"{self.segment}: no event begins or ends at offset {offset}, but one at {self.start + begin}"
                )
            begin = behind
        self._at = wanted

    def rest(self) -> memoryview:
        """The bytes behind the last event that was taken."""
        return self._data[self._at :]


def end_of_event(data: memoryview, at: int, segment: str, start: int) -> int | None:
    """The index in ``data``, or beyond it, where the event at ``at`` ends; None if its header is not whole."""
    if len(data) - at < header_bytes:
        return None
    kind, length = _HEADER.unpack_from(data, at)
    if kind != 0 or not 0 <= length <= event_bytes_max:
        raise DataCorruption(f"{segment}: no event header at offset {start + at}")
    return int(at + header_bytes + length)
