"""Reads a few events of one segment for people, without a trace: no reader, no position, no record.

An answer is bounded in bytes read, in events and in the bytes of each that are shown. Reading begins at an event's
header: the head of a segment and the ``next`` of an answer are such places, and the store's index of events knows some
near the tail (docs/wire-protocol.md 5.5).
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from controller_service.event_processors.request_stream import WireClients
from controller_service.window.answers import EventPage, EventSeen
from controller_service.window.event_times import offset_before_time
from controller_service.window.parts import WindowParts
from controller_service.window.picture import segment_label
from pravega_common.errors import InvalidArgument, SegmentTruncated, UnsupportedOperation
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import index_segment_name, is_internal_scope, segment_id, segment_name
from pravega_common.stream_cut import StreamCut
from pravega_common.wire import commands as c

StartKind = Literal["head", "tail", "offset", "time", "cut"]
cut_chars_max: Final = 6_000
"""Characters of a stream cut's text: many a proxy takes no longer address."""


@dataclass(frozen=True, slots=True)
class Start:
    """The place to begin at: ``kind``, and the offset, time or text of a stream cut that it needs."""

    kind: StartKind
    offset: int = 0
    time_ms: int = 0
    cut: str = ""


events_max: Final = 50
event_bytes_shown_max: Final = 4 * 1024
read_bytes_max: Final = 1024 * 1024
"""Bytes read for one answer; an event that is longer is passed over by its header alone."""
tail_bytes: Final = (128 * 1024, 4 * 1024 * 1024)
"""How far before the tail a beginning of an event is looked for, the nearer one first; all of it is read. The index has
one after every block of a writer, of 1 MiB at most, and after every merged transaction, however long."""
event_bytes_max: Final = 8 * 1024 * 1024
cut_segments_named_max: Final = 20
"""Segments of a cut that an error names."""
_NO_BEGINNING: Final = "no beginning of an event is on record near the tail: begin with the oldest events"
_HEADER: Final = struct.Struct(">ii")


async def read_events(parts: WindowParts, scope: str, stream: str, segment: str, start: Start) -> EventPage:
    """Events of a segment, by its label. ``StreamNotFound``, ``SegmentNotFound``; ``InvalidArgument`` for an offset
    at which no event begins or that is not in the segment, and for a cut of another stream or without the segment."""
    clients = parts.clients
    if clients is None:
        raise UnsupportedOperation("this controller has no connections to segment stores to read events by")
    if is_internal_scope(scope):
        raise InvalidArgument(f"scope {scope} is the system's own: its events are not shown")
    await (await parts.store.open(scope, stream)).state()
    identifier = _identifier(segment)
    info = await parts.access.info(segment_name(scope, stream, identifier))
    is_tail = start.kind == "tail"
    first = await _first_offset(parts, clients, info, identifier, start)
    read = await _read(clients, info, first, tail_bytes[-1] if is_tail else read_bytes_max)
    events, following = split_events(read, first, newest=is_tail)
    return EventPage(
        segment=segment_label(identifier),
        start_offset=info.start_offset,
        length=info.length,
        is_sealed=info.is_sealed,
        events=events,
        next=following,
        unknown=None if events or not is_tail or info.length == info.start_offset else _NO_BEGINNING,
    )


def _identifier(label: str) -> int:
    number, _, epoch = label.partition(".")
    if not (number.isascii() and number.isdigit() and epoch.isascii() and epoch.isdigit() and len(label) < 20):
        raise InvalidArgument(f"segment {label!r} is not of the form number.epoch")
    return segment_id(int(number), int(epoch))


async def _first_offset(
    parts: WindowParts, clients: WireClients, info: SegmentInfo, identifier: int, start: Start
) -> int:
    match start.kind:
        case "head":
            return info.start_offset
        case "offset":
            return _offset_within(info, start.offset)
        case "cut":
            return _offset_within(info, _offset_in_cut(info.name, identifier, start.cut))
        case "time":
            index = await parts.access.info(index_segment_name(info.name))
            return await offset_before_time(partial(_read, clients, index), index, info, start.time_ms)
        case "tail":
            return await _near_tail(clients, info)


def _offset_within(info: SegmentInfo, offset: int) -> int:
    if not info.start_offset <= offset <= info.length:
        raise InvalidArgument(f"offset {offset}: the segment has {info.start_offset} to {info.length}")
    return offset


def _offset_in_cut(segment: str, identifier: int, text: str) -> int:
    cut = StreamCut.from_text(text)
    if cut.is_unbounded or cut.scoped_stream != segment.rpartition("/")[0]:
        raise InvalidArgument(f"the stream cut is one of {cut.scoped_stream or 'no stream'}, not of this stream")
    if identifier not in cut.offsets:
        known = ", ".join(segment_label(item) for item in sorted(cut.offsets)[:cut_segments_named_max])
        raise InvalidArgument(f"the stream cut lies in other segments: {known}")
    return cut.offsets[identifier]


async def _near_tail(clients: WireClients, info: SegmentInfo) -> int:
    for distance in tail_bytes:
        wanted = info.length - distance
        if wanted <= info.start_offset:
            return info.start_offset
        found = await _indexed(clients, info.name, wanted)
        if found < info.length:
            return found
    return info.length


async def _indexed(clients: WireClients, segment: str, offset: int) -> int:
    """The first beginning of an event on record at or after an offset, or the segment's length."""
    reply = await clients.requests.call(
        segment, lambda rid: c.LocateOffset(rid, segment, offset), c.OffsetLocated, idempotent=True
    )
    return reply.offset


async def _read(clients: WireClients, info: SegmentInfo, first: int, bytes_max: int) -> bytes:
    """The bytes from an offset that are there already, as far as an answer may read; it never waits for more."""
    end = min(info.length, first + bytes_max)
    pieces = []
    while first < end:
        wanted, at = end - first, first

        def make(rid: int, at: int = at, wanted: int = wanted) -> c.Command:
            return c.ReadSegment(info.name, at, wanted, "", rid)

        try:
            reply = await clients.requests.call(info.name, make, c.SegmentRead, idempotent=True)
        except SegmentTruncated as error:
            raise InvalidArgument(f"{info.name} was truncated while it was read: begin again") from error
        piece = bytes(reply.data[:wanted])
        if not piece:
            break
        pieces.append(piece)
        first += len(piece)
    return b"".join(pieces)


def split_events(data: bytes, first: int, *, newest: bool) -> tuple[list[EventSeen], int]:
    """The events that begin in the data and their end; ``newest``: the last ones of more than fit an answer."""
    found: list[EventSeen] = []
    position = 0
    while len(data) - position >= _HEADER.size and (newest or len(found) < events_max):
        kind, length = _HEADER.unpack_from(data, position)
        if kind != 0 or not 0 <= length <= event_bytes_max:
            raise InvalidArgument(f"no event begins at offset {first + position}")
        body = position + _HEADER.size
        if body + length > len(data) and found:
            break
        shown = data[body : body + min(length, event_bytes_shown_max)]
        found.append(
            EventSeen(offset=first + position, length=length, data=base64.b64encode(shown).decode(), shown=len(shown))
        )
        position = body + length
        if newest:
            del found[:-events_max]
    return found, first + position
