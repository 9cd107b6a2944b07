"""The events that simulated writers append: each says who wrote it, so that any byte can be traced to its writer.

Layout (big endian): magic, segment key u32, writer u16, number u32, payload bytes u32, CRC32 of the fields and of the
payload u32, payload.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

MAGIC: Final = b"\xabEv\xba"
_FIELDS: Final = struct.Struct(">4sIHII")
_CRC: Final = struct.Struct(">I")
head_bytes: Final = _FIELDS.size + _CRC.size


class EventId(NamedTuple):
    segment: int
    """Key of the incarnation of a segment that it was written to."""
    writer: int
    number: int
    """From 1 without gaps, for each writer."""


@dataclass(slots=True)
class Event:
    """``end`` is the segment's length after it, once that is known."""

    id: EventId
    data: bytes
    is_acked: bool = False
    end: int = -1
    first_sent_at_s: float | None = None
    """Nothing has it that was written before: a later attempt may find it there already."""


def make_event(event_id: EventId, payload_bytes: int) -> Event:
    payload = random.Random(f"event {event_id}").randbytes(payload_bytes)
    fields = _FIELDS.pack(MAGIC, *event_id, payload_bytes)
    return Event(event_id, fields + _CRC.pack(zlib.crc32(payload, zlib.crc32(fields))) + payload)


def event_at(content: bytes, position: int) -> tuple[EventId, int] | None:
    """The whole event that begins there, with its end; ``None`` if none does."""
    if len(content) - position < head_bytes or content[position : position + 4] != MAGIC:
        return None
    _, segment, writer, number, size = _FIELDS.unpack_from(content, position)
    (checksum,) = _CRC.unpack_from(content, position + _FIELDS.size)
    end = position + head_bytes + size
    payload = content[position + head_bytes : end]
    fields = content[position : position + _FIELDS.size]
    if len(payload) != size or zlib.crc32(payload, zlib.crc32(fields)) != checksum:
        return None
    return EventId(segment, writer, number), end


def first_event(content: bytes) -> int:
    """The position of the first whole event; the end of the content if it has none."""
    position = content.find(MAGIC)
    while position >= 0:
        if event_at(content, position) is not None:
            return position
        position = content.find(MAGIC, position + 1)
    return len(content)
