"""Keeps an internal stream and its reader group in memory, for event sources of any number of instances."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from controller_service.event_processors.event_source import slice_wait_s
from pravega_common.errors import InvalidArgument, PravegaError
from pravega_common.hashing import position_of_key
from pravega_streams.errors import EventsTruncated, ReaderOffline
from pravega_streams.event.event_writer import event_bytes_max
from pravega_streams.readers.segment_feed import read_bytes
from pravega_streams.readers.slices import SegmentSlice

wait_step_s = 0.005
"""The longest wait for a slice, so that a test on a clock moved by hand goes on."""


@dataclass
class FakeEventSegment:
    """``start``: the bytes before it were truncated. ``recorded``: the group's position."""

    name: str
    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    recorded: int = 0
    released: int = 0
    owner: str = ""
    is_out: bool = False


class InMemoryEventStream:
    """The stream and the group. A reader owns every n-th segment; what it released is recorded when it asks for more.

    ``fault``, called with the name of each operation, may raise what that operation then fails with.
    """

    def __init__(self, segments: int = 2) -> None:
        self.segments = [FakeEventSegment(f"_system/_requeststream/{number}.#epoch.0") for number in range(segments)]
        self.online: list[str] = []
        self.incarnations: dict[str, int] = {}
        self.news = asyncio.Event()
        self.fault: Callable[[str], PravegaError | None] = lambda operation: None
        self.written: list[tuple[str, bytes]] = []

    def source(self, reader_id: str) -> InMemoryEventSource:
        return InMemoryEventSource(self, reader_id)

    def segment_of(self, routing_key: str) -> FakeEventSegment:
        return self.segments[int(position_of_key(routing_key) * len(self.segments))]

    def append(self, routing_key: str, event: bytes) -> None:
        if len(event) > event_bytes_max:
            raise InvalidArgument(f"an event of {len(event)} bytes is larger than {event_bytes_max} bytes")
        self.segment_of(routing_key).data += struct.pack(">ii", 0, len(event)) + event
        self.written.append((routing_key, event))
        self.news.set()

    def remove(self, reader_id: str) -> None:
        """Take a reader out: its segments stand where it recorded last."""
        if reader_id in self.online:
            self.online.remove(reader_id)
        for segment in self.segments:
            if segment.owner == reader_id:
                segment.owner, segment.is_out, segment.released = "", False, segment.recorded
        self.news.set()

    def record(self, reader_id: str) -> None:
        for segment in self.segments:
            if segment.owner == reader_id:
                segment.recorded = segment.released

    def balance(self) -> None:
        """Give each segment to the reader whose turn it is, once the present owner has given its slice back."""
        for index, segment in enumerate(self.segments):
            due = sorted(self.online)[index % len(self.online)]
            if segment.owner != due and not segment.is_out:
                segment.recorded = segment.released
                segment.owner = due


class InMemoryEventSource:
    """An ``EventSource`` with the limits of the real one: an event of 8 MiB, a slice of one read or one event."""

    def __init__(self, stream: InMemoryEventStream, reader_id: str) -> None:
        self.reader_id = reader_id
        self._stream = stream
        self._incarnation = 0

    async def join(self) -> None:
        self._raise("join")
        self._stream.remove(self.reader_id)
        self._stream.online.append(self.reader_id)
        self._incarnation = self._stream.incarnations.get(self.reader_id, 0) + 1
        self._stream.incarnations[self.reader_id] = self._incarnation

    async def next_slice(self, timeout_s: float = slice_wait_s) -> SegmentSlice | None:
        self._check_online()
        self._raise("next_slice")
        self._stream.record(self.reader_id)
        self._stream.balance()
        if (piece := self._take()) is not None:
            return piece
        self._stream.news.clear()
        try:
            async with asyncio.timeout(min(timeout_s, wait_step_s)):
                await self._stream.news.wait()
        except TimeoutError:
            return None
        self._check_online()
        return self._take()

    def release(self, piece: SegmentSlice, offset: int) -> None:
        if not self._is_online:
            return
        segment = next(item for item in self._stream.segments if item.name == piece.segment)
        if segment.owner == self.reader_id and segment.is_out:
            piece.move_to(offset)
            segment.is_out, segment.released = False, offset
            self._stream.news.set()

    async def write(self, routing_key: str, event: bytes) -> None:
        self._raise("write")
        self._stream.append(routing_key, event)

    def other_readers(self) -> list[str]:
        return [reader for reader in self._stream.online if reader != self.reader_id]

    async def take_offline(self, reader_id: str) -> None:
        self._raise("take_offline")
        self._stream.remove(reader_id)

    async def truncate(self) -> None:
        self._raise("truncate")
        if sorted(self._stream.online)[:1] == [self.reader_id]:
            for segment in self._stream.segments:
                segment.start = segment.recorded

    async def leave(self) -> None:
        if self._is_online:
            self._stream.record(self.reader_id)
            self._stream.remove(self.reader_id)
        self._incarnation = 0

    def _take(self) -> SegmentSlice | None:
        for segment in self._stream.segments:
            if segment.owner != self.reader_id or segment.is_out or segment.released >= len(segment.data):
                continue
            if segment.released < segment.start:
                begin, segment.released = segment.released, segment.start
                raise EventsTruncated(segment.name, begin, segment.start)
            first = 8 + struct.unpack_from(">i", segment.data, segment.released + 4)[0]
            end = segment.released + max(first, read_bytes)
            segment.is_out = True
            return SegmentSlice(segment.name, segment.released, memoryview(bytes(segment.data[segment.released : end])))
        return None

    def _raise(self, operation: str) -> None:
        error = self._stream.fault(operation)
        if error is not None:
            raise error

    @property
    def _is_online(self) -> bool:
        current = self._stream.incarnations.get(self.reader_id) == self._incarnation
        return current and self.reader_id in self._stream.online

    def _check_online(self) -> None:
        if not self._is_online:
            raise ReaderOffline(f"reader {self.reader_id} is offline")
