"""Changes the metadata of a container by one durable operation; the same in normal work and in recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pravega_common.invariants import check
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE
from segment_service.contracts.merge_records import MergeRecord, remember, source_key
from segment_service.contracts.operations import (
    ActivateSegment,
    Append,
    AttributeValues,
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
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.held_attributes import agree, may_be_in_tier2
from segment_service.metadata.segment_record import read_record


def commit_operation(metadata: ContainerMetadata, operation: Operation) -> None:
    """Apply an operation whose fields are all assigned. An effect that does not fit is an invariant violation."""
    if type(operation) is Append:
        commit_append(metadata, operation)
    else:
        _COMMITS[type(operation)](metadata, operation)


def commit_append(metadata: ContainerMetadata, operation: Append) -> None:
    """``commit_operation`` for the operation that nearly all are."""
    segment = metadata.segments[operation.segment_id]
    if segment.length != operation.offset or segment.is_sealed:
        check(False, "append does not continue its segment", segment=segment, offset=operation.offset)
    segment.length += operation.length
    segment.last_modified_ms = operation.time_ms
    if operation.values:
        _set_attributes(segment, operation.values)
    if segment.length >= segment.next_boundary:
        metadata.boundaries.reached(segment)


def _set_attributes(segment: SegmentMetadata, values: AttributeValues) -> None:
    attributes = segment.attributes
    for attribute_id, value in values:
        if value != NULL_ATTRIBUTE_VALUE or may_be_in_tier2(segment, attribute_id):
            attributes[attribute_id] = value
        else:
            attributes.pop(attribute_id, None)


def _map_segment(metadata: ContainerMetadata, operation: MapSegment) -> None:
    check(operation.name not in metadata.ids, "segment mapped twice", operation=operation)
    check(operation.segment_id not in metadata.segments, "segment id used twice", operation=operation)
    segment = SegmentMetadata(
        segment_id=operation.segment_id,
        name=operation.name,
        last_modified_ms=operation.created_ms,
        attributes=dict(operation.attributes),
    )
    metadata.segments[operation.segment_id] = segment
    metadata.ids[operation.name] = operation.segment_id
    metadata.traffic.watch(segment)
    metadata.changes.note(operation.segment_id)
    metadata.next_segment_id_durable = max(metadata.next_segment_id_durable, operation.segment_id + 1)
    metadata.next_segment_id = max(metadata.next_segment_id, metadata.next_segment_id_durable)


def _seal(metadata: ContainerMetadata, operation: Seal) -> None:
    segment = metadata.segments[operation.segment_id]
    check(segment.length == operation.offset and not segment.is_sealed, "seal does not fit", segment=segment)
    segment.is_sealed = True
    metadata.changes.note(segment.segment_id)


def _truncate(metadata: ContainerMetadata, operation: Truncate) -> None:
    segment = metadata.segments[operation.segment_id]
    check(operation.offset >= segment.start_offset, "start offset would go back", segment=segment)
    segment.start_offset = operation.offset
    segment.check_invariants()
    metadata.changes.note(segment.segment_id)


def _merge(metadata: ContainerMetadata, operation: Merge) -> None:
    target, source = metadata.segments[operation.segment_id], metadata.segments[operation.source_id]
    check(target.length == operation.offset and not target.is_sealed, "merge does not continue", target=target)
    check(source.length == operation.length and source.is_sealed, "merge of another length", source=source)
    metadata.growth.grows(target)
    target.length += operation.length
    target.last_modified_ms = operation.time_ms
    _set_attributes(target, operation.values)
    if operation.length:
        metadata.boundaries.merged(target)
        metadata.traffic.merged(target, source, operation.time_ms)
    if target.merges is None:
        target.merges = {}
    record = MergeRecord(operation.offset + operation.length, operation.time_ms)
    remember(target.merges, source_key(source.name), record)
    source.is_merged = True
    source.merged_into = target.segment_id
    check(metadata.ids.pop(source.name, 0) == source.segment_id, "merge of an unmapped source", source=source)
    metadata.changes.note(target.segment_id)
    metadata.changes.note_gone(source)


def _update_attributes(metadata: ContainerMetadata, operation: UpdateAttributes) -> None:
    segment = metadata.segments[operation.segment_id]
    _set_attributes(segment, operation.values)
    metadata.traffic.watch(segment)
    metadata.changes.note(operation.segment_id)


def _delete(metadata: ContainerMetadata, operation: Delete) -> None:
    segment = metadata.segments[operation.segment_id]
    segment.is_deleted = True
    check(metadata.ids.pop(segment.name, 0) == segment.segment_id, "delete of an unmapped segment", segment=segment)
    metadata.changes.note_gone(segment)


def _activate(metadata: ContainerMetadata, operation: ActivateSegment) -> None:
    """In normal work, and in a replay that began early enough, the segment is there, as the record says."""
    record = read_record(operation.record)
    operation.record = b""
    known = metadata.segments.get(record.segment_id)
    if known is None:
        check(record.segment_id == operation.segment_id, "activation of another segment", record=record)
        check(record.name not in metadata.ids, "segment activated beside another of its name", segment=record)
        check(record.segment_id < metadata.next_segment_id, "segment activated with a fresh id", segment=record)
        metadata.segments[record.segment_id] = record
        metadata.ids[record.name] = record.segment_id
        return
    known.is_logged = True
    check(
        (known.name, known.length, known.start_offset, known.is_sealed)
        == (record.name, record.length, record.start_offset, record.is_sealed)
        and agree(known, record),
        "segment activated in another state than it is in",
        known=known,
        record=record,
    )


def _nothing(_metadata: ContainerMetadata, _operation: Operation) -> None:
    pass


_COMMITS: Final[dict[type[Operation], Callable[[ContainerMetadata, Any], None]]] = {
    MapSegment: _map_segment,
    Seal: _seal,
    Truncate: _truncate,
    Merge: _merge,
    UpdateAttributes: _update_attributes,
    Delete: _delete,
    ActivateSegment: _activate,
    Checkpoint: _nothing,
    Barrier: _nothing,
}
