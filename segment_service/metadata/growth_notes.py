"""Notes which segments grew since somebody looked, and what they had before. A state machine without I/O.

A segment's first growth after a look costs an entry, and every further frame or merge one look into a dictionary;
nothing is paid per append or event.
"""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.names import is_user_stream_segment
from segment_service.contracts.attributes import EVENT_COUNT, MERGED_EVENT_COUNT
from segment_service.contracts.segment_metadata import SegmentMetadata


@dataclass(frozen=True, slots=True)
class Growth:
    """The bytes and events that a segment of a user's stream took in."""

    segment: str
    bytes: int
    events: int


@dataclass(frozen=True, slots=True)
class Before:
    """The length and the events that a segment had before it grew."""

    segment: SegmentMetadata
    length: int
    events: int


class GrowthNotes:
    """The segments that grew since each was taken.

    Nothing is noted while ``is_on`` is false: not in a recovery, whose operations are no traffic of now.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.before: dict[int, Before] = {}
        """By segment id; a frame looks here before it calls ``grows``."""

    def grows(self, segment: SegmentMetadata) -> None:
        """The segment is about to grow."""
        if self.is_on and segment.segment_id not in self.before:
            self.before[segment.segment_id] = Before(segment, segment.length, _events_of(segment))

    def noted(self) -> list[int]:
        """The ids of the segments that are noted."""
        return list(self.before)

    def take(self, segment_id: int) -> Growth | None:
        """Forget the note of a segment: its growth, or None if it is no segment of a user's stream, or not noted.

        Clients may set the count of events back, which counts as no event.
        """
        before = self.before.pop(segment_id, None)
        if before is None or not is_user_stream_segment(before.segment.name):
            return None
        segment = before.segment
        return Growth(segment.name, segment.length - before.length, max(_events_of(segment) - before.events, 0))

    def stop(self) -> None:
        """Note nothing any more."""
        self.is_on = False
        self.before.clear()


def _events_of(segment: SegmentMetadata) -> int:
    attributes = segment.attributes
    return attributes.get(EVENT_COUNT, 0) + attributes.get(MERGED_EVENT_COUNT, 0)
