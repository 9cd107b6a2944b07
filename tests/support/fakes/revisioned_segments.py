"""Keeps the bytes of revisioned segments in memory behind ``RevisionedSegments``."""

from __future__ import annotations

import struct
from collections.abc import Callable

from pravega_common.errors import SegmentNotFound, SegmentTruncated
from tests.support.fakes.segment_access import InMemorySegmentAccess


class InMemoryRevisionedSegments:
    """The segments are those of ``access``, which knows their extents. ``read_max``: bytes of one answer, as a store
    gives fewer than were asked for."""

    def __init__(
        self, access: InMemorySegmentAccess, read_max: int = 1 << 20, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._access = access
        self._read_max = read_max
        self._wall_ms = wall_ms
        self._data: dict[str, bytearray] = {}
        self._marks: dict[str, int] = {}

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        info = await self._access.info(segment)
        if offset < info.start_offset:
            raise SegmentTruncated(segment, info.start_offset, offset)
        return bytes(self._bytes_of(segment)[offset : offset + min(length, self._read_max)])

    async def append_at(self, segment: str, offset: int, event: bytes) -> bool:
        if (await self._access.info(segment)).length != offset:
            return False
        framed = struct.pack(">ii", 0, len(event)) + event
        self._bytes_of(segment).extend(framed)
        self._access.append(segment, len(framed))
        self._access.segments[segment].last_modified_ms = self._wall_ms()
        return True

    async def mark(self, segment: str) -> int | None:
        self._bytes_of(segment)
        return self._marks.get(segment)

    async def move_mark(self, segment: str, expected: int | None, revision: int) -> bool:
        self._bytes_of(segment)
        if self._marks.get(segment) != expected:
            return False
        self._marks[segment] = revision
        return True

    def _bytes_of(self, segment: str) -> bytearray:
        found = self._access.segments.get(segment)
        if found is None:
            raise SegmentNotFound(segment)
        data = self._data.setdefault(segment, bytearray())
        if found.length < len(data):
            # Another segment of the same name: the former one was deleted.
            data.clear()
            self._marks.pop(segment, None)
        return data
