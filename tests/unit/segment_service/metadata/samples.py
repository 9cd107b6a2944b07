"""A container's metadata with every field in use, for the format tests."""

from __future__ import annotations

from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.merge_records import MergeRecord, source_key
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata


def sample_metadata() -> ContainerMetadata:
    alive = SegmentMetadata(
        segment_id=4,
        name="scope/strøm/0",
        length=1 << 33,
        start_offset=5,
        storage_length=1 << 32,
        last_modified_ms=1_700_000_000_000,
        attributes={AttributeId(bytes(range(16))): -1},
        merges={
            source_key("t"): MergeRecord(9, 1_700_000_000_001),
            source_key("é"): MergeRecord(11, 1_700_000_000_002),
        },
    )
    sealed = SegmentMetadata(
        segment_id=5, name="b", length=3, storage_length=3, is_sealed=True, is_sealed_in_storage=True
    )
    merged = SegmentMetadata(segment_id=6, name="t", length=2, is_sealed=True, is_merged=True, merged_into=4)
    deleted = SegmentMetadata(segment_id=7, name="d", is_deleted=True)
    metadata = ContainerMetadata(
        container_id=2,
        epoch=9,
        sequence_number=77,
        next_segment_id=8,
        segments={segment.segment_id: segment for segment in (alive, sealed, merged, deleted)},
        ids={"scope/strøm/0": 4, "b": 5},
        identity=bytes(range(16, 32)),
        table_high_water=76,
    )
    metadata.changes.add_gone(3, "g")
    return metadata
