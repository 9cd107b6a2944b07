"""Boundaries are looked up in an index segment that is truncated or deleted meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pravega_common.errors import SegmentNotFound, SegmentTruncated, Unavailable
from pravega_common.event_index import IndexRecord, encode_records, index_record_bytes, page_records
from pravega_common.names import index_segment_name
from segment_service.contracts.attributes import INDEX_OWNER, INDEXED_LENGTH
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_store import ReadResult
from segment_service.event_index.locator import BoundaryLocator
from segment_service.metadata.container_metadata import ContainerMetadata

SEGMENT = "scope/stream/0.#epoch.0"
records = 3 * page_records
event_bytes = 100


class IndexedSegment:
    """A segment with an index of three pages. ``during_read`` runs while bytes of the index are on their way."""

    def __init__(self) -> None:
        length = records * event_bytes
        attributes = {INDEX_OWNER: 1, INDEXED_LENGTH: length}
        self.segment = SegmentMetadata(1, SEGMENT, length=length)
        self.index = SegmentMetadata(
            2, index_segment_name(SEGMENT), length=records * index_record_bytes, attributes=attributes
        )
        self.metadata = ContainerMetadata(0)
        for one in (self.segment, self.index):
            self.metadata.segments[one.segment_id] = one
            self.metadata.ids[one.name] = one.segment_id
        self.during_read: Callable[[], None] = lambda: None
        self.locator = BoundaryLocator(self.metadata, self.read)

    async def read(self, name: str, offset: int, length: int) -> ReadResult:
        found = self.metadata.by_name(name)
        if found is None:
            raise SegmentNotFound(name)
        assert offset < found.length, "a read that waits for bytes"
        if offset < self.index.start_offset:
            raise SegmentTruncated(name, self.index.start_offset, offset)
        first, end = offset // index_record_bytes, (offset + length) // index_record_bytes
        data = encode_records([IndexRecord((one + 1) * event_bytes, one + 1, 0) for one in range(first, end)])
        self.during_read()
        return ReadResult(offset, (memoryview(data),), at_tail=False, end_of_segment=False)

    def truncate(self, record: int) -> None:
        """Truncate the segment at the end of this record, and its index as far as that goes."""
        self.segment.start_offset = (record + 1) * event_bytes
        self.index.start_offset = record * index_record_bytes

    def delete(self) -> None:
        self.segment.is_deleted = self.index.is_deleted = True
        self.metadata.ids.clear()

    def make_again(self) -> None:
        """Delete both, and make empty ones of their names."""
        self.delete()
        for one in (SegmentMetadata(3, self.segment.name), SegmentMetadata(4, self.index.name)):
            self.metadata.segments[one.segment_id] = one
            self.metadata.ids[one.name] = one.segment_id


@pytest.mark.parametrize("start", [page_records + 5, 2 * page_records, 2 * page_records + 5])
async def test_a_truncation_amid_a_search_is_looked_at_again(start: int) -> None:
    """The search has seen a page, wants an earlier one, and by then that one is truncated away."""
    indexed = IndexedSegment()
    indexed.during_read = lambda: indexed.truncate(start)
    assert await indexed.locator.locate(indexed.segment, 150) == (start + 1) * event_bytes


async def test_an_index_that_keeps_changing_is_no_answer() -> None:
    """Another boundary than the next one would leave events out."""
    indexed = IndexedSegment()

    def fails() -> None:
        raise SegmentTruncated(indexed.index.name, 0, 0)

    indexed.during_read = fails
    with pytest.raises(Unavailable):
        await indexed.locator.locate(indexed.segment, 150)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_segment_that_is_deleted_amid_a_search_is_not_found(is_made_again: bool) -> None:
    indexed = IndexedSegment()
    indexed.during_read = indexed.make_again if is_made_again else indexed.delete
    with pytest.raises(SegmentNotFound):
        await indexed.locator.locate(indexed.segment, 150)


async def test_a_segment_that_is_made_again_between_two_parts_of_a_page_is_not_waited_for() -> None:
    """Its new index is shorter: a read of the rest would wait for bytes that may never come."""
    world = IndexedSegment()
    read = world.read

    async def read_in_parts(name: str, offset: int, length: int) -> ReadResult:
        return await read(name, offset, min(length, 100 * index_record_bytes))

    world.locator = BoundaryLocator(world.metadata, read_in_parts)
    world.during_read = world.make_again
    with pytest.raises(SegmentNotFound):
        await world.locator.locate(world.segment, records * event_bytes // 2)
