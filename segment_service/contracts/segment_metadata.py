"""Defines what a container knows about one segment, as of the last committed operation."""

from __future__ import annotations

from dataclasses import dataclass, field

from pravega_common.invariants import check
from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.merge_records import MergeRecords


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
    """Those in memory: all core ones, and of the writers' all, or, if it has ``ATTRIBUTES_IN_TIER2``, some. There,
    ``NULL_ATTRIBUTE_VALUE`` is a writer's attribute that is known to be absent."""
    merges: MergeRecords | None = None
    """What was merged into it of late; None while nothing was."""
    in_table: bool = field(default=False, compare=False)
    """Whether the metadata table may have an entry of it."""
    is_logged: bool = field(default=True, compare=False)
    """Whether operations on it may be logged: the log says how it was before. Not of a segment that came back from the
    metadata table and was only read since."""
    users: int = field(default=0, compare=False)
    """Calls that hold on to it: it stays in memory."""
    used_s: float = field(default=0.0, compare=False)
    """Time of the last call that read it or asked about it."""
    next_boundary: int = field(default=0, compare=False)
    """Length from which on the boundary tracker wants to know; the tracker's own."""
    index_high_water: int = field(default=0, compare=False)
    """The least high water of an index that has all attributes which are not in memory."""
    indexed: dict[AttributeId, int] = field(default_factory=dict, compare=False)
    """Attributes that came from the index, with their values there; the attribute index's own, as is the next one."""
    looked_at: dict[AttributeId, int] = field(default_factory=dict, compare=False)
    """Attributes of writers as they were when some left memory the last time."""
    recovered_length: int | None = field(default=0, compare=False)
    """Length that recovery found in the log, 0 for a segment made since: no earlier owner can have brought more than
    that to Tier 2. ``None`` once the storage writer compared the two; its own from the end of the recovery on."""

    def check_invariants(self) -> None:
        check(0 <= self.storage_length <= self.length, "storage length beyond length", segment=self)
        check(0 <= self.start_offset <= self.length, "start offset beyond length", segment=self)

    def set_storage_length(self, length: int) -> None:
        check(length >= self.storage_length, "storage length went back", segment=self, length=length)
        self.storage_length = length
        self.check_invariants()
