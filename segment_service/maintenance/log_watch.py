"""Tells whether a log got anything but events: what other containers, or the control plane, may rely on.

The ends of the logs of several containers are not read at one moment. If none of them got such an operation from the
end of one reading of all to the end of the next, they are as of the moment between the two, but for events that came
later.
"""

from __future__ import annotations

from pravega_common.names import is_index_segment, is_user_stream_segment
from segment_service.contracts.data_log import LogEntry
from segment_service.contracts.operations import (
    ActivateSegment,
    Append,
    Barrier,
    Checkpoint,
    MapSegment,
    Operation,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.data_frame_reader import DataFrameReader
from segment_service.durable_log.serializer import deserialize
from segment_service.metadata.segment_record import read_record
from segment_service.metadata.snapshot import read_snapshot


class LogWatch:
    """Counts the operations of one log that are more than events in a stream of a user.

    Memory: an id or two per segment that the log names, as many as a start of the container holds.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.in_tier2: set[int] = set()
        """Ids of the segments of which Tier 2 had bytes, as the log says; some are gone since."""
        self._reader = DataFrameReader()
        self._of_events: set[int] = set()

    def feed(self, entry: LogEntry) -> None:
        """Count the operations that end in the next frame. ``DataCorruption`` if it does not fit those before."""
        for record in self._reader.feed(entry):
            self._take(deserialize(record.data))

    def _take(self, operation: Operation) -> None:
        if isinstance(operation, Checkpoint):
            for segment in read_snapshot(operation.snapshot).segments.values():
                self._know(segment)
        elif isinstance(operation, ActivateSegment):
            self._know(read_record(operation.record))
        elif isinstance(operation, Append):
            self.changes += operation.segment_id not in self._of_events
        elif not isinstance(operation, Barrier):
            self.changes += 1
            if isinstance(operation, MapSegment):
                self._name(operation.segment_id, operation.name)

    def _know(self, segment: SegmentMetadata) -> None:
        self._name(segment.segment_id, segment.name)
        if segment.storage_length:
            self.in_tier2.add(segment.segment_id)

    def _name(self, segment_id: int, name: str) -> None:
        if holds_events(name):
            self._of_events.add(segment_id)


def holds_events(name: str) -> bool:
    """Whether a segment is of a stream of a user, or an index of one: no table, no transaction, nothing internal."""
    return is_index_segment(name) or is_user_stream_segment(name)
