"""Keeps the watermarks of a stream in the segment of its mark stream, as events of a revisioned stream.

The segment's mark is the revision in front of the newest watermark, so the newest is found without reading the rest. A
crash between the append and the mark leaves two to be read. Only the end of the segment decides who may append.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller_service.segment_access.revisioned_segments import RevisionedSegments
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.watermarks.watermark import (
    Watermark,
    decode_watermark,
    encode_watermark,
    watermark_bytes_max,
)
from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from pravega_common.runtime.failpoints import failpoint, register

mark_segment_bytes_max: Final = 256 * 1024 * 1024
"""Above this the oldest watermarks go. At one watermark per 10 s it holds 18 hours of a stream of 1,000 segments, and a
year of a stream of one."""
read_bytes_max: Final = 1024 * 1024
"""Bytes of one read, above those of the largest watermark."""
_HEADER: Final = struct.Struct(">ii")

APPENDED = register("controller.watermark_appended")
MARKED = register("controller.watermark_marked")


@dataclass(frozen=True, slots=True)
class MarkSegmentEnd:
    """The newest watermark, the offset behind it, the first offset that is there, the mark as it was found, and the
    time of the last change by the store's clock."""

    newest: Watermark | None
    offset: int
    start_offset: int
    mark: int | None
    changed_ms: int


class MarkSegments:
    """Two instances that append to one segment at once: the second's watermark is refused."""

    def __init__(
        self, revisions: RevisionedSegments, access: SegmentAccess, bytes_max: int = mark_segment_bytes_max
    ) -> None:
        self._revisions = revisions
        self._access = access
        self._bytes_max = bytes_max

    async def end_of(self, segment: str) -> MarkSegmentEnd:
        """``DataCorruption`` for what is no watermark."""
        info = await self._access.info(segment)
        mark = await self._revisions.mark(segment)
        offset = mark if mark is not None and info.start_offset <= mark <= info.length else info.start_offset
        newest: Watermark | None = None
        while offset < info.length:
            data = await self._read(segment, offset, info.length)
            for payload in _events(data):
                newest = decode_watermark(payload)
                offset += _HEADER.size + len(payload)
        return MarkSegmentEnd(newest, offset, info.start_offset, mark, info.last_modified_ms)

    async def append(self, segment: str, end: MarkSegmentEnd, watermark: Watermark) -> bool:
        """Write a watermark at the end that was read; False if another instance wrote one there."""
        event = encode_watermark(watermark)
        if not await self._revisions.append_at(segment, end.offset, event):
            return False
        failpoint(APPENDED)
        if await self._revisions.move_mark(segment, end.mark, end.offset):
            failpoint(MARKED)
        length = end.offset + _HEADER.size + len(event)
        if length - end.start_offset > self._bytes_max:
            await self._trim(segment, end)
        return True

    async def _trim(self, segment: str, end: MarkSegmentEnd) -> None:
        """Take away the oldest watermarks of one read: more than one append adds, at a boundary of events."""
        oldest = await self._read(segment, end.start_offset, end.offset)
        length = sum(_HEADER.size + len(payload) for payload in _events(oldest))
        await self._access.truncate_segment(segment, end.start_offset + length)

    async def _read(self, segment: str, offset: int, end: int) -> memoryview:
        """One whole event or more from an offset, as far as one read goes."""
        wanted = min(end - offset, read_bytes_max)
        data = bytearray()
        while len(data) < wanted:
            piece = await self._revisions.read(segment, offset + len(data), wanted - len(data))
            check(len(piece) > 0, "a read below the end of a segment answered nothing", segment=segment)
            data += piece
        if not any(_events(data)):
            raise DataCorruption(f"{segment}: {len(data)} bytes from {offset} hold no watermark")
        return memoryview(data)


def _events(data: bytearray | memoryview) -> Iterator[memoryview]:
    """The payloads of the whole events at the front. ``DataCorruption`` for headers that no watermark has."""
    view, offset = memoryview(data), 0
    while len(view) - offset >= _HEADER.size:
        kind, length = _HEADER.unpack_from(view, offset)
        if kind != 0 or not 0 < length <= watermark_bytes_max:
            raise DataCorruption(f"an event of type {kind} and {length} bytes in a mark stream")
        if len(view) - offset - _HEADER.size < length:
            return
        yield view[offset + _HEADER.size : offset + _HEADER.size + length]
        offset += _HEADER.size + length
