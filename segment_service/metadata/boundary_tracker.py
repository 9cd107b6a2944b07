"""Chooses the event boundaries of a container's segments that are to be indexed. A state machine without I/O.

Called when operations are committed, in normal work and in recovery alike. An append pays one comparison of its
segment's new length with ``SegmentMetadata.next_boundary``; only lengths at or beyond it come here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from pravega_common.event_index import IndexRecord
from pravega_common.names import is_user_stream_segment
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    INDEXED_LENGTH,
    INDEXED_TIME,
    MERGED_EVENT_COUNT,
)
from segment_service.contracts.segment_metadata import SegmentMetadata

indexed_bytes_min: Final = 64 * 1024
"""Boundaries of appends that follow each other more closely are left out; the last one of a quiet segment never is."""
marks_max: Final = 4_096
"""Boundaries of one segment that wait to be written; beyond that every second one is forgotten."""

_never: Final = 1 << 63
_count_max: Final = (1 << 63) - 1

NOTHING_INDEXED: Final = IndexRecord(0, 0, 0)


class BoundaryTracker:
    """The boundaries that the index segments of a container lack."""

    def __init__(self) -> None:
        self._marks: dict[int, list[IndexRecord]] = {}
        """Chosen boundaries of the segments that grew since their last record, by id, longest waiting first."""
        self.on_growth: Callable[[], None] = lambda: None
        """Called when a segment lacks a record that lacked none before."""
        self.on_traffic: Callable[[SegmentMetadata], None] = lambda segment: None
        """Called with it then, and with one that grew while its records were written."""

    def __len__(self) -> int:
        return len(self._marks)

    def reached(self, segment: SegmentMetadata) -> None:
        """The segment's length is at or beyond ``next_boundary``."""
        marks = self._marks.get(segment.segment_id)
        if marks is None:
            marks = self._begin(segment)
            if marks is None:
                return
            indexed = max(segment.next_boundary - 1, 0)  # see ``written``
            if segment.length - indexed < indexed_bytes_min:
                segment.next_boundary = indexed + indexed_bytes_min
                return
        self._mark(segment, marks)

    def merged(self, segment: SegmentMetadata) -> None:
        """Another segment was merged into this one: its end is always a boundary worth knowing."""
        marks = self._marks.get(segment.segment_id)
        if marks is None:
            marks = self._begin(segment)
        if marks is not None:
            self._mark(segment, marks)

    def _begin(self, segment: SegmentMetadata) -> list[IndexRecord] | None:
        if segment.next_boundary == _never or not is_user_stream_segment(segment.name):
            segment.next_boundary = _never
            return None
        marks = self._marks[segment.segment_id] = []
        self.on_growth()
        self.on_traffic(segment)
        return marks

    def _mark(self, segment: SegmentMetadata, marks: list[IndexRecord]) -> None:
        if len(marks) >= marks_max:
            del marks[::2]
        marks.append(_end_of(segment))
        segment.next_boundary = segment.length + indexed_bytes_min

    def is_waiting(self, segment_id: int) -> bool:
        """Whether the segment lacks records."""
        return segment_id in self._marks

    def waiting(self, count_max: int) -> list[int]:
        """Ids of segments that lack records, the longest waiting first."""
        return [segment_id for segment_id, _ in zip(self._marks, range(count_max), strict=False)]

    def records(self, index: SegmentMetadata | None, segment: SegmentMetadata) -> list[IndexRecord]:
        """The records that the segment's index, if there is one, lacks up to the segment's present end."""
        marks = self._marks.get(segment.segment_id, [])
        last = NOTHING_INDEXED if index is None else last_record(index)
        return ascending(last, [*marks, _end_of(segment)])

    def marks_of(self, segment: SegmentMetadata) -> list[IndexRecord]:
        """Boundaries that are not in the index yet: durable, but not all there are."""
        return self._marks.get(segment.segment_id, [])

    def written(self, segment: SegmentMetadata, length: int) -> None:
        """The index has a record of this length, the greatest one. What came meanwhile waits behind all others."""
        marks = self._marks.pop(segment.segment_id, [])
        rest = [mark for mark in marks if mark.length > length]
        if segment.length > length:
            self._marks[segment.segment_id] = rest
            self.on_traffic(segment)
            segment.next_boundary = (rest[-1].length if rest else length) + indexed_bytes_min
        else:
            segment.next_boundary = length + 1

    def given_up(self, segment: SegmentMetadata) -> None:
        """Give up the records of an index that cannot be written; the next append begins a new list."""
        self.gone(segment.segment_id)
        segment.next_boundary = 0

    def gone(self, segment_id: int) -> None:
        self._marks.pop(segment_id, None)

    def lacks_index(self, segment: SegmentMetadata) -> None:
        """The segment has no index segment at all, so that one must be made."""
        self._marks.setdefault(segment.segment_id, [])

    def keep_only(self, segment_ids: Container[int]) -> None:
        """Forget the boundaries of all other segments."""
        for segment_id in list(self._marks):
            if segment_id not in segment_ids:
                self.gone(segment_id)


def last_record(index: SegmentMetadata) -> IndexRecord:
    """The last record of an index segment, from its attributes: reading it might need Tier 2."""
    attributes = index.attributes
    return IndexRecord(
        attributes.get(INDEXED_LENGTH, 0), attributes.get(EVENT_COUNT, 0), attributes.get(INDEXED_TIME, 0)
    )


def ascending(last: IndexRecord, records: Iterable[IndexRecord]) -> list[IndexRecord]:
    """The records that continue an index: lengths rise, and counts and times never go down.

    Clocks do go back, and clients may write EVENT_COUNT as they may any attribute.
    """
    result = []
    for record in records:
        if record.length > last.length:
            last = IndexRecord(
                record.length, max(last.event_count, record.event_count), max(last.time_ms, record.time_ms)
            )
            result.append(last)
    return result


def _end_of(segment: SegmentMetadata) -> IndexRecord:
    attributes = segment.attributes
    events = attributes.get(EVENT_COUNT, 0) + attributes.get(MERGED_EVENT_COUNT, 0)
    return IndexRecord(segment.length, min(events, _count_max), segment.last_modified_ms)
