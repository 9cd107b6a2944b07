"""Converts events to the bytes of a segment and back, whole columns at a time (docs/wire-protocol.md 5.1).

A segment of an event stream is a concatenation of ``i32 0 | i32 n | n bytes``, both numbers big-endian. No function
here runs Python code per event except ``_chase``, which walks headers only (measured: see the README of this folder).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pravega_common.arrow_numbers import numbers_of
from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_spark.rows.arrays import Int64s, empty_value, number_array
from pravega_streams.event import write_budget

event_header_bytes: Final = 8
event_bytes_max: Final = 8 * 1024 * 1024
"""Largest event that may be written, in bytes without its header (docs/wire-protocol.md 5.1)."""
stored_event_bytes_max: Final = 256 * 1024 * 1024
"""Largest event accepted on reading; other clients may write events larger than ``event_bytes_max``.

See docs/wire-protocol.md 5.2.
"""
block_bytes_max: Final = write_budget.block_bytes_max
"""Framed bytes that are sent to a segment at a time; a single larger event makes a block of its own."""
kept_share_min: Final = 8
"""A block keeps the framed bytes of its whole column in memory. The last one of a segment waits for the next column's,
maybe for a long time: one that is smaller than this part of them is copied."""

NOT_EVENTS: Final = (
    "either the position is not between two events, or the stream has bytes that are no events, as a byte stream does"
)
"""The reason where no event begins or ends at a place."""

_arrow_offset_max: Final = 2**31 - 1
_inline_bytes_max: Final = 12
_probe_events: Final = 16
_header = struct.Struct(">Q").unpack_from
views_can_be_built = int(pa.__version__.partition(".")[0]) >= 19
"""PyArrow 18 refuses the buffers of an array of views."""


# ---- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FramedEvents:
    """Events one behind the other with their headers; ``ends[i]`` is where event ``i`` ends in ``data``."""

    data: memoryview
    ends: Int64s


@dataclass(frozen=True, slots=True)
class Block:
    """Whole framed events for one segment, given by its index among the segments of the stream.

    ``rows`` are the events' indexes in the column that the block was made from.
    """

    segment_index: int
    data: memoryview
    event_count: int
    rows: Int64s


def event_lengths(events: pa.Array) -> Int64s:
    """Length in bytes of every event, without header. Raises ``InvalidArgument`` for nulls and for too long events."""
    if events.null_count:
        raise InvalidArgument(
            f"{events.null_count} of {len(events)} events are null; filter them out or give them a value"
        )
    import pyarrow.compute as pc  # 30 ms of CPU that a planner spares.

    lengths: Int64s = numbers_of(pc.binary_length(events)).astype(np.int64)
    if len(lengths) and (longest := int(lengths.max())) > event_bytes_max:
        too_long = int((lengths > event_bytes_max).sum())
        raise InvalidArgument(
            f"{too_long} events are larger than {event_bytes_max} bytes, the largest has {longest}; "
            "store large values elsewhere and write a reference"
        )
    return lengths


def frame_events(events: pa.Array, lengths: Int64s, order: Int64s | None = None) -> FramedEvents:
    """Events (any binary or string array without nulls) with headers, in one new buffer; ``order``: their indexes."""
    if not len(events):
        return FramedEvents(memoryview(b""), lengths)
    if order is not None:
        lengths = lengths[order]
    ends = np.cumsum(lengths + event_header_bytes)
    total = int(ends[-1])
    if order is not None and total <= _arrow_offset_max and _can_be_views(events, lengths):
        framed = _by_views(events, lengths, order)
    else:
        framed = _by_joining(events, lengths, order)
    return FramedEvents(memoryview(framed.buffers()[2])[:total], ends)


def _can_be_views(events: pa.Array, lengths: Int64s) -> bool:
    if not views_can_be_built or not (pa.types.is_binary(events.type) or pa.types.is_string(events.type)):
        return False
    return int(lengths.min()) > _inline_bytes_max


def _by_views(events: pa.Array, lengths: Int64s, order: Int64s) -> pa.Array:
    """Header, event, header, event, …: a list of views, so that one pass copies the bytes, whatever their order.

    A view has four numbers: the length, then either up to 12 bytes themselves, or the first four of them, the number of
    a buffer and the place in it. The first four of events are left out: they are there for comparisons.
    """
    count = len(events)
    _, borders, data = events.buffers()
    starts = np.frombuffer(borders, dtype=np.int32, count=count, offset=np.dtype(np.int32).itemsize * events.offset)
    views = np.zeros((2 * count, 4), dtype=np.int32)
    views[0::2, 0] = event_header_bytes
    views[0::2, 2] = lengths.astype(">i4").view(np.int32)  # Behind the type, which is 0.
    views[1::2, 0] = lengths
    views[1::2, 3] = starts[order]
    return pa.Array.from_buffers(pa.binary_view(), 2 * count, [None, pa.py_buffer(views), data]).cast(pa.binary())


def _by_joining(events: pa.Array, lengths: Int64s, order: Int64s | None) -> pa.Array:
    """The same of any events in two passes, or in one if no order is given."""
    import pyarrow.compute as pc

    if order is not None:
        events = events.take(number_array(order, pa.int64()))
    count, wide = len(events), int(lengths.sum()) + event_header_bytes * len(events) > _arrow_offset_max
    kind = pa.large_binary() if wide else pa.binary()
    header_ends = np.arange(count + 1, dtype=np.int64 if wide else np.int32) * event_header_bytes
    headers = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(header_ends), pa.py_buffer(lengths.astype(">u8"))])
    return pc.binary_join_element_wise(headers, events.cast(kind), empty_value(kind))


def nothing_gathered(_: int) -> int:
    """As ``gathered_bytes`` below, of writers that send each block as it comes."""
    return 0


def blocks_by_segment(
    events: pa.Array,
    lengths: Int64s,
    segments: npt.NDArray[np.uint16] | None,
    gathered_bytes: Callable[[int], int] = nothing_gathered,
) -> Iterator[Block]:
    """The events as framed blocks of at most ``block_bytes_max``, in their order within each segment.

    ``segments[i]`` is the index of the segment of event ``i``; ``None`` puts all into segment 0. ``gathered_bytes``
    tells for the index of a segment, just before its first block, how many bytes wait to be sent to it: that block
    fills them up to ``block_bytes_max``. Else a remainder would go alone, as it does not fit before a whole block.
    """
    if not len(events):
        return
    if segments is None or int(segments.min()) == int(segments.max()):
        index = 0 if segments is None else int(segments[0])
        framed = frame_events(events, lengths)
        yield from _cut(framed, np.arange(len(events)), index, 0, len(events), gathered_bytes(index))
        return
    order = np.argsort(segments, kind="stable")
    framed = frame_events(events, lengths, order)
    counts = np.bincount(segments)
    first = 0
    for index in np.flatnonzero(counts).tolist():
        last = first + int(counts[index])
        yield from _cut(framed, order, index, first, last, gathered_bytes(index))
        first = last


def _cut(
    framed: FramedEvents, order: Int64s, segment_index: int, first: int, last: int, gathered_bytes: int
) -> Iterator[Block]:
    """Blocks of the events ``first`` to ``last`` (excluded)."""
    start = int(framed.ends[first - 1]) if first else 0
    room = block_bytes_max - gathered_bytes
    if int(framed.ends[first]) - start > room:  # what has gathered goes alone, and the first block is a whole one
        room = block_bytes_max
    while first < last:
        following = int(np.searchsorted(framed.ends[first:last], start + room, side="right")) + first
        following = max(following, first + 1)
        end = int(framed.ends[following - 1])
        data = framed.data[start:end]
        if following == last and len(data) * kept_share_min < len(framed.data):
            data = memoryview(bytes(data))
        yield Block(segment_index, data, following - first, order[first:following])
        first, start, room = following, end, block_bytes_max


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventLayout:
    """The places of whole events in a buffer.

    ``starts`` are the positions of their headers and the events follow each other without gaps up to ``end``.
    ``wanted_bytes`` is the length of what begins at ``end`` and is not complete, header included; 8 if even its
    header is cut off, 0 if nothing begins there.
    """

    starts: npt.NDArray[np.int32]
    end: int
    wanted_bytes: int


def index_events(data: memoryview) -> EventLayout:
    """Find the events in bytes that begin with a header. Raises ``DataCorruption`` where no header can be."""
    size = len(data)
    run_starts, position = _equal_run(data)
    chased, position = _chase(data, position)
    if position == size or (size - position < event_header_bytes and position < size):
        wanted = event_header_bytes if position < size else 0
        return EventLayout(_joined(run_starts, chased), position, wanted)
    # The walk stepped over the end: its last header belongs to an event that is not complete, or is no header at all.
    last = chased.pop()
    length = position - last - event_header_bytes
    if length > stored_event_bytes_max:
        raise DataCorruption(
            f"no event begins at byte {last} of the data: its header {bytes(data[last : last + 8]).hex()} is not "
            f"a type of 0 and a length of at most {stored_event_bytes_max}; {NOT_EVENTS}"
        )
    return EventLayout(_joined(run_starts, chased), last, position - last)


def _equal_run(data: memoryview) -> tuple[npt.NDArray[np.int32] | None, int]:
    """The events at the start that have the length of the first one, found without a loop; and where they end."""
    if len(data) < event_header_bytes:
        return None, 0
    first = _header(data, 0)[0]
    size = first + event_header_bytes
    count = len(data) // size
    if count < _probe_events:
        return None, 0
    headers: npt.NDArray[np.uint64] = np.ndarray((count,), dtype=">u8", buffer=data, strides=(size,))
    if not (headers[:_probe_events] == first).all():
        return None, 0
    equal = headers == first
    run = count if equal.all() else int(equal.argmin())
    return np.arange(0, run * size, size, dtype=np.int32), run * size


def _chase(data: memoryview, position: int) -> tuple[list[int], int]:
    """Follow headers from ``position`` until less than a header is left; the result may lie beyond the end."""
    starts: list[int] = []
    add, header, last = starts.append, _header, len(data) - event_header_bytes
    while position <= last:
        add(position)
        position += event_header_bytes + header(data, position)[0]
    return starts, position


def _joined(run: npt.NDArray[np.int32] | None, chased: list[int]) -> npt.NDArray[np.int32]:
    rest = np.array(chased, dtype=np.int32)
    return rest if run is None else np.concatenate((run, rest)) if len(rest) else run


def events_of(data: memoryview, index: EventLayout) -> pa.Array:
    """The indexed events as a binary array in memory of its own (``data`` may be overwritten afterwards)."""
    count = len(index.starts)
    borders = np.empty(2 * count + 1, dtype=np.int32)  # Header, event, header, event, …, end.
    borders[0:-1:2] = index.starts
    np.add(index.starts, event_header_bytes, out=borders[1::2])
    borders[-1] = index.end
    buffers: list[Any] = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    return pieces.take(number_array(np.arange(1, 2 * count, 2, dtype=np.int32), pa.int32()))


cut_event_bytes: Final = 256 * 1024
"""Room for an event that the end of a window cuts off; a longer one leaves room for one reply of the two."""
window_bytes_default: Final = 2 * 2 * 1024 * 1024 + cut_event_bytes
"""Two replies of a store (2 MiB each) are received where they go, behind what is left of an event."""


class EventWindow:
    """A buffer that a reader fills at its end and from which whole events are taken at its start.

    Only the bytes of the one event that is cut off by the end of the buffer are ever moved. The buffer grows when a
    single event does not fit. ``offset`` is the segment offset of the first byte in the window.
    """

    def __init__(self, offset: int, window_bytes: int = window_bytes_default) -> None:
        self.offset = offset
        self._buffer = _memory(window_bytes)
        self._filled = 0
        self._index: EventLayout | None = None

    @property
    def unconsumed_bytes(self) -> int:
        return self._filled

    def free(self) -> memoryview:
        """The part of the buffer to write next; empty when the window is full."""
        return self._buffer[self._filled :]

    def filled(self, count: int) -> None:
        self._filled += count

    def index(self) -> EventLayout:
        """The whole events in the window; corrupt data is reported with its segment offset."""
        try:
            self._index = index_events(self._buffer[: self._filled])
        except DataCorruption as error:
            raise DataCorruption(f"in the data from offset {self.offset} on, {error}") from error
        return self._index

    def events(self, index: EventLayout) -> pa.Array:
        return events_of(self._buffer[: self._filled], index)

    def consume(self, index: EventLayout) -> None:
        """Forget the indexed events and make room for the next ones."""
        rest = self._filled - index.end
        source = self._buffer[index.end : self._filled]
        if index.wanted_bytes > len(self._buffer):
            self._buffer = _memory(index.wanted_bytes)
        # Through bytes: source and target may overlap.
        self._buffer[:rest] = bytes(source)
        self._filled = rest
        self.offset += index.end


def _memory(size: int) -> memoryview:
    return np.empty(size, dtype=np.uint8).data
