"""Notes which segments are to be watched because their rate may scale them. A state machine without I/O.

An append pays nothing: the boundary tracker comes here when a segment begins to lack index records, and whenever its
index was written and it has grown meanwhile, thus at most once a round of the event index and not once an append.
"""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.names import is_user_stream_segment
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    MERGED_EVENT_COUNT,
    SCALE_POLICY_RATE,
    SCALE_POLICY_TYPE,
)
from segment_service.contracts.segment_metadata import SegmentMetadata


@dataclass(slots=True)
class MergedTraffic:
    """The sums over what was merged into one segment."""

    bytes: int = 0
    events: int = 0
    byte_ms: int = 0
    """The sum of bytes times the life of the source in ms."""


class TrafficNotes:
    """The segments with a rate policy that came, got their policy or grew since each was taken.

    Nothing is noted while ``is_on`` is false: not in a recovery, whose operations are no traffic of now.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._grown: dict[int, MergedTraffic | None] = {}

    def watch(self, segment: SegmentMetadata) -> None:
        """The segment is new, has another policy, or grew. Called often: whatever has no rate policy is left out."""
        if self.is_on and has_rate_policy(segment) and is_user_stream_segment(segment.name):
            self._grown.setdefault(segment.segment_id, None)

    def merged(self, target: SegmentMetadata, source: SegmentMetadata, time_ms: int) -> None:
        """All of the source was appended to the target at this time."""
        if not self.is_on or not has_rate_policy(target) or not is_user_stream_segment(target.name):
            return
        found = self._grown.get(target.segment_id) or MergedTraffic()
        attributes = source.attributes
        found.bytes += source.length
        found.events += max(attributes.get(EVENT_COUNT, 0), 0) + max(attributes.get(MERGED_EVENT_COUNT, 0), 0)
        found.byte_ms += source.length * max(time_ms - attributes.get(CREATION_TIME, time_ms), 0)
        self._grown[target.segment_id] = found

    def noted(self) -> list[int]:
        """The ids of the segments that are noted."""
        return list(self._grown)

    def take(self, segment_id: int) -> MergedTraffic | None:
        """Forget the note of a segment; the sums of its merges, or None without any."""
        return self._grown.pop(segment_id, None)

    def clear(self) -> None:
        self._grown.clear()


def has_rate_policy(segment: SegmentMetadata) -> bool:
    """Whether the segment's stream is to be scaled by its rate."""
    return segment.attributes.get(SCALE_POLICY_TYPE, 0) > 0 and segment.attributes.get(SCALE_POLICY_RATE, 0) > 0
