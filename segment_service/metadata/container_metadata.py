"""Holds what a container knows about itself and its segments, as of the last committed operation."""

from __future__ import annotations

from dataclasses import dataclass, field

from segment_service.contracts.log_identity import unknown_identity
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.boundary_tracker import BoundaryTracker
from segment_service.metadata.growth_notes import GrowthNotes
from segment_service.metadata.held_attributes import HeldAttributes
from segment_service.metadata.quarantine import Quarantine
from segment_service.metadata.table_changes import TableChanges
from segment_service.metadata.traffic_notes import TrafficNotes


@dataclass(slots=True)
class ContainerMetadata:
    """All segments of one container and its counters."""

    container_id: int
    epoch: int = 0
    sequence_number: int = 0
    """The last one assigned."""
    next_segment_id: int = 1
    segments: dict[int, SegmentMetadata] = field(default_factory=dict)
    """By id. Deleted and merged ones stay until the storage writer is through with them."""
    ids: dict[str, int] = field(default_factory=dict)
    """By name, live segments only."""
    boundaries: BoundaryTracker = field(default_factory=BoundaryTracker, compare=False)
    """Boundaries of events that are not yet in the index segments."""
    traffic: TrafficNotes = field(default_factory=TrafficNotes, compare=False)
    """Segments whose rate is to be watched."""
    growth: GrowthNotes = field(default_factory=GrowthNotes, compare=False)
    """Segments that grew of late, with what they had before."""
    held: HeldAttributes = field(default_factory=HeldAttributes, compare=False)
    """Segments with many attributes in memory."""
    changes: TableChanges = field(default_factory=TableChanges, compare=False)
    """Segments whose entries in the metadata table are not up to date."""
    table_high_water: int = field(default=0, compare=False)
    """High water in the stamp of the metadata table; 0 without one. What checkpoints leave out is in a table that has
    at least this one."""
    unread_pairs: dict[str, str] = field(default_factory=dict, compare=False)
    """Segments of users' streams of which one half, the segment or its event index, is in memory, and the other could
    not be read from the metadata table; by the segment's name, with the reason. Whether there is such a half is not
    known: nothing may be made in its place, nor be taken for the rest of one that is gone."""
    identity: bytes = unknown_identity
    """Identity of the log."""
    next_segment_id_durable: int = field(default=1, compare=False)
    """As ``next_segment_id``, which counts segments that are on their way to the log, too."""

    quarantine: Quarantine = field(init=False, compare=False)
    """Segments whose bytes in Tier 2 are damaged."""

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(self.container_id)
        self.boundaries.on_traffic = self.traffic.watch

    def damaged_segments(self) -> list[tuple[str, str]]:
        """The names of segments that damage in Tier 2 keeps from requests, wholly or in part, each with the reason."""
        return [*self.quarantine, *self.unread_pairs.items()]

    def by_name(self, name: str) -> SegmentMetadata | None:
        segment_id = self.ids.get(name)
        return None if segment_id is None else self.segments[segment_id]
