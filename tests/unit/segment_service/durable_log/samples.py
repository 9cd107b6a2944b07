"""One operation of every kind, with every field set, for the format tests."""

from __future__ import annotations

from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE, AttributeId
from segment_service.contracts.operations import (
    ActivateSegment,
    Append,
    Barrier,
    Checkpoint,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    Truncate,
    UpdateAttributes,
)

FIRST = AttributeId(bytes(range(16)))
SECOND = AttributeId(bytes(range(16, 32)))

SAMPLES: dict[str, Operation] = {
    "map_segment": MapSegment(
        sequence_number=1, name="scope/strøm/0", segment_id=7, created_ms=1_700_000_000_000, attributes={FIRST: -3}
    ),
    "append": Append(
        sequence_number=2,
        segment_id=7,
        data=[b"ab", memoryview(b"cde")],
        length=5,
        values=[(FIRST, 9), (SECOND, NULL_ATTRIBUTE_VALUE)],
        offset=1 << 40,
        time_ms=1_700_000_000_001,
    ),
    "append_empty": Append(sequence_number=3, segment_id=7, data=[], length=0, offset=5, time_ms=1),
    "seal": Seal(sequence_number=4, segment_id=7, offset=5),
    "truncate": Truncate(sequence_number=5, segment_id=7, offset=4),
    "merge": Merge(sequence_number=6, segment_id=7, source_id=8, values=[(SECOND, 1)], offset=5, length=11, time_ms=12),
    "update_attributes": UpdateAttributes(sequence_number=7, segment_id=7, values=[(FIRST, 1)]),
    "delete": Delete(sequence_number=8, segment_id=7),
    "checkpoint": Checkpoint(sequence_number=9, snapshot=b"snapshot"),
    "activate_segment": ActivateSegment(sequence_number=10, segment_id=7, record=b"record"),
    "barrier": Barrier(sequence_number=(1 << 62) + 1),
}
