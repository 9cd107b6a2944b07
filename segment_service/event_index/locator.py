"""Looks event boundaries up in the index segments of one container."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from pravega_common.errors import DataCorruption, SegmentNotFound, SegmentTruncated, Unavailable
from pravega_common.event_index import (
    LENGTH,
    RecordPage,
    RecordSearch,
    index_record_bytes,
    page_range,
    page_records,
)
from pravega_common.invariants import check
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_store import ReadResult
from segment_service.metadata.boundary_tracker import last_record
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.index_segments import index_of, unread_index

pages_cached_max: Final = 64
"""Pages of 24 KiB that a container keeps for the next question."""
attempts_max: Final = 3
"""Attempts to answer one question, when an index segment is truncated while it is read."""

Read = Callable[[str, int, int], Awaitable[ReadResult]]


class BoundaryLocator:
    """Binary search over pages of 1,024 records, which stay cached: records never change."""

    def __init__(self, metadata: ContainerMetadata, read: Read) -> None:
        """``read`` as of ``SegmentStore``."""
        self._metadata = metadata
        self._read = read
        self._pages: OrderedDict[tuple[int, int], RecordPage] = OrderedDict()

    async def locate(self, segment: SegmentMetadata, offset: int) -> int:
        """The smallest known event boundary at or after ``offset``; the segment's length if none is known.
        ``DataCorruption`` if the index cannot be read: it may know one. ``Unavailable`` if it changes all the time."""
        unread = unread_index(self._metadata, segment)
        if unread is not None:
            raise DataCorruption(f"{segment.name}: its event index cannot be read: {unread}")
        for _ in range(attempts_max):
            if segment.is_deleted or segment.is_merged:
                raise SegmentNotFound(segment.name)
            target = max(offset, segment.start_offset)
            try:
                found = await self._in_index(segment, target)
            except (SegmentTruncated, SegmentNotFound):
                continue
            return self._behind_index(segment, target) if found is None else found
        # Not what follows the index: it may lie far beyond the boundary that was asked for.
        raise Unavailable(f"{segment.name}: its event index changed {attempts_max} times while it was searched")

    def _behind_index(self, segment: SegmentMetadata, target: int) -> int:
        marks = self._metadata.boundaries.marks_of(segment)
        position = bisect_left(marks, target, key=lambda mark: mark.length)
        return marks[position].length if position < len(marks) else segment.length

    async def _in_index(self, segment: SegmentMetadata, target: int) -> int | None:
        index = index_of(self._metadata, segment)
        if index is None or target > last_record(index).length:
            return None
        number = await self._search(index, target)
        if number >= index.length // index_record_bytes:
            return None
        return (await self._page(index, number // page_records)).record(number).length

    async def record_before(self, index: SegmentMetadata, offset: int) -> int:
        """Number of the last record of a length of at most ``offset``; of the first one there is if all are greater."""
        number = await self._search(index, offset + 1)
        return max(number - 1, index.start_offset // index_record_bytes)

    async def _search(self, index: SegmentMetadata, length: int) -> int:
        """Number of the first record of at least this length; that behind the last one if all are shorter.
        ``SegmentTruncated``, ``SegmentNotFound`` if the index is truncated or deleted meanwhile: the search may want
        what is gone, and a read by name would be one of an index that was made since, maybe behind its end."""
        start = index.start_offset
        search = RecordSearch(start // index_record_bytes, index.length // index_record_bytes, LENGTH, length)
        while (wanted := search.wanted) is not None:
            page = await self._page(index, wanted)
            if index.is_deleted:
                raise SegmentNotFound(index.name)
            if index.start_offset != start:
                raise SegmentTruncated(index.name, index.start_offset, start)
            search.feed(page)
        return search.found

    async def _page(self, index: SegmentMetadata, number: int) -> RecordPage:
        first, end = page_range(number, index.start_offset // index_record_bytes, index.length // index_record_bytes)
        key = (index.segment_id, number)
        page = self._pages.get(key)
        if page is None or page.end < end or page.first > first:
            page = RecordPage(first, await self._bytes(index, first, end))
            self._pages[key] = page
        self._pages.move_to_end(key)
        if len(self._pages) > pages_cached_max:
            self._pages.popitem(last=False)
        return page

    async def _bytes(self, index: SegmentMetadata, first: int, end: int) -> bytes:
        """All bytes of these records. They are durable, so that no read waits for an append; one of an index that was
        made since, and is shorter, would."""
        offset, left = first * index_record_bytes, (end - first) * index_record_bytes
        parts: list[memoryview] = []
        while left > 0:
            if index.is_deleted:
                raise SegmentNotFound(index.name)
            result = await self._read(index.name, offset, left)
            check(result.length > 0 or result.at_tail, "records of an index segment are missing", index=index.name)
            if not result.length:
                raise SegmentNotFound(index.name)  # it was deleted, or the container is stopping
            parts.extend(result.data)
            offset += result.length
            left -= result.length
        return b"".join(parts)
