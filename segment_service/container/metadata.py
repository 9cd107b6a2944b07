"""What a container knows about itself and its segments, as of the last committed operation."""

from __future__ import annotations

from dataclasses import dataclass, field

from pravega_common.invariants import check
from segment_service.contracts.attributes import AttributeId
from segment_service.event_index.tracker import BoundaryTracker


@dataclass(slots=True)
class SegmentMetadata:
    """One segment. Written by one coroutine only (see the methods' owners); offsets in bytes.

    ``length``, ``start_offset``, ``is_sealed``, ``is_merged``, ``is_deleted``, ``attributes``: the operation
    processor, when an operation is durable. ``storage_length``, ``is_sealed_in_storage``: the storage writer.
    """

    segment_id: int
    name: str
    length: int = 0
    start_offset: int = 0
    storage_length: int = 0
    is_sealed: bool = False
    is_sealed_in_storage: bool = False
    is_merged: bool = False
    merged_into: int = 0
    """Id of the target, once merged."""
    is_deleted: bool = False
    last_modified_ms: int = 0
    attributes: dict[AttributeId, int] = field(default_factory=dict)
    next_boundary: int = field(default=0, compare=False)
    """Length from which on the boundary tracker wants to know; the tracker's own."""

    def check_invariants(self) -> None:
        check(0 <= self.storage_length <= self.length, "storage length beyond length", segment=self)
        check(0 <= self.start_offset <= self.length, "start offset beyond length", segment=self)

    def set_storage_length(self, length: int) -> None:
        check(length >= self.storage_length, "storage length went back", segment=self, length=length)
        self.storage_length = length
        self.check_invariants()


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
    """Of events, not yet in the index segments."""

    def by_name(self, name: str) -> SegmentMetadata | None:
        segment_id = self.ids.get(name)
        return None if segment_id is None else self.segments[segment_id]
