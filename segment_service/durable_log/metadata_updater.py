"""Validates operations one after the other, against what is committed and what is still on its way to Tier 1.

``stage`` decides an operation: it refuses it, or assigns sequence number, ids, offsets and attribute values and
remembers the effect on top of the committed metadata. ``commit`` makes the effect part of the metadata once the
operation is durable. Operations are committed in the order in which they were staged; when one cannot become durable,
nothing staged can, and ``rollback`` forgets it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pravega_common.errors import (
    BadOffset,
    InvalidArgument,
    NoSuchSegment,
    SegmentExists,
    SegmentSealed,
    SegmentTruncated,
)
from pravega_common.invariants import check, unreachable
from pravega_common.names import is_transient_segment
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    MERGED_EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
)
from segment_service.durable_log.attribute_updates import attribute_value_max, resolve_updates
from segment_service.durable_log.metadata_commit import commit_operation
from segment_service.durable_log.operations import (
    Append,
    AttributeValues,
    Barrier,
    Checkpoint,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    SegmentOperation,
    Truncate,
    UpdateAttributes,
)
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.segment_metadata import SegmentMetadata

segment_name_bytes_max: Final = 4_096
"""UTF-8 bytes of a segment's name."""


class _Staged:
    """A segment as it will be when everything staged is durable."""

    __slots__ = (
        "attributes",
        "base",
        "is_gone",
        "is_sealed",
        "length",
        "merged_into",
        "modified_ms",
        "name",
        "pending",
        "segment_id",
        "start_offset",
    )

    def __init__(self, segment_id: int, name: str, base: SegmentMetadata | None) -> None:
        self.segment_id = segment_id
        self.name = name
        self.base = base
        self.length = 0 if base is None else base.length
        self.start_offset = 0 if base is None else base.start_offset
        self.is_sealed = base is not None and base.is_sealed
        self.is_gone = base is not None and (base.is_deleted or base.is_merged)
        self.merged_into = 0 if base is None else base.merged_into
        self.modified_ms = 0 if base is None else base.last_modified_ms
        self.attributes: dict[AttributeId, int] = {}
        self.pending = 0
        """Staged operations not yet committed; at zero this object is dropped."""

    def attribute(self, attribute_id: AttributeId) -> int:
        value = self.attributes.get(attribute_id)
        if value is None:
            if self.base is None:
                return NULL_ATTRIBUTE_VALUE
            return self.base.attributes.get(attribute_id, NULL_ATTRIBUTE_VALUE)
        return value

    def resolve(self, updates: Sequence[AttributeUpdate]) -> AttributeValues:
        return resolve_updates(self.name, updates, self.attribute)


class OperationMetadataUpdater:
    """Staged and committed metadata of one container. Never waits."""

    def __init__(self, metadata: ContainerMetadata) -> None:
        self.metadata = metadata
        self._staged: dict[int, _Staged] = {}
        self._staged_ids: dict[str, int] = {}
        """Names that staged operations map (id) or unmap (minus the id that is going)."""

    def stage(self, operation: Operation, segment: str, source: str, time_ms: int) -> None:
        """Validate and assign; raises a ``RejectedError`` and changes nothing if the operation is refused.

        ``segment`` and ``source`` are the names the operation is about. A merge needs its source sealed: the caller
        stages a ``Seal`` first when ``needs_seal`` says so.
        """
        if type(operation) is Append:
            self._stage_append(operation, segment, time_ms)
        elif type(operation) is MapSegment:
            self._stage_map_segment(operation, time_ms)
        elif type(operation) is Merge:
            self._stage_merge(operation, segment, source, time_ms)
        elif isinstance(operation, SegmentOperation):
            self._stage_other(operation, segment)
        else:
            check(isinstance(operation, Checkpoint | Barrier), "unknown operation", operation=operation)
        self.metadata.sequence_number += 1
        operation.sequence_number = self.metadata.sequence_number

    def needs_seal(self, operation: Merge, segment: str, source: str) -> bool:
        """Whether the source of a merge is open; raises like ``stage`` if the merge would be refused anyway."""
        self._validate_merge(operation, segment, source)
        return not self._live(source).is_sealed

    def commit(self, operation: Operation) -> None:
        """The operation is durable: change the metadata for good."""
        commit_operation(self.metadata, operation)
        if type(operation) is Append:
            self._release(operation.segment_id)
        elif type(operation) is MapSegment:
            self._release(operation.segment_id, self.metadata.segments[operation.segment_id])
            if self._staged_ids.get(operation.name) == operation.segment_id:
                del self._staged_ids[operation.name]
        elif isinstance(operation, SegmentOperation):
            self._release(operation.segment_id)
            if type(operation) is Merge:
                self._release(operation.source_id)
                self._forget_name(operation.source_id)
            elif type(operation) is Delete:
                self._forget_name(operation.segment_id)

    def rollback(self) -> None:
        """Nothing that is staged will become durable."""
        self._staged.clear()
        self._staged_ids.clear()

    def staged_segments(self) -> list[SegmentMetadata]:
        """All segments as they will be when everything staged is durable, for a checkpoint."""
        staged = self._staged
        result = [segment for segment_id, segment in self.metadata.segments.items() if segment_id not in staged]
        result.extend(_as_metadata(entry) for entry in staged.values())
        return result

    def _find(self, name: str) -> _Staged | None:
        segment_id = self._staged_ids.get(name) if self._staged_ids else None
        if segment_id is None:
            segment_id = self.metadata.ids.get(name)
        if segment_id is None or segment_id < 0:
            return None
        entry = self._staged.get(segment_id)
        return entry if entry is not None else _Staged(segment_id, name, self.metadata.segments[segment_id])

    def _live(self, name: str) -> _Staged:
        entry = self._find(name)
        if entry is None or entry.is_gone:
            raise NoSuchSegment(name)
        return entry

    def _hold(self, entry: _Staged) -> None:
        entry.pending += 1
        self._staged[entry.segment_id] = entry

    def _release(self, segment_id: int, base: SegmentMetadata | None = None) -> None:
        entry = self._staged[segment_id]
        entry.pending -= 1
        if base is not None:
            entry.base = base
        if entry.pending == 0:
            del self._staged[segment_id]

    def _forget_name(self, segment_id: int) -> None:
        name = self.metadata.segments[segment_id].name
        if self._staged_ids.get(name) == -segment_id:
            del self._staged_ids[name]

    def _stage_append(self, operation: Append, segment: str, time_ms: int) -> None:
        entry = self._live(segment)
        if entry.is_sealed:
            raise SegmentSealed(segment, offset=entry.length)
        if operation.updates:
            operation.values = entry.resolve(operation.updates)
        if operation.expected_offset is not None and operation.expected_offset != entry.length:
            raise BadOffset(segment, entry.length, operation.expected_offset)
        operation.segment_id = entry.segment_id
        operation.offset = entry.length
        operation.time_ms = time_ms
        entry.length += operation.length
        entry.modified_ms = time_ms
        if operation.values:
            entry.attributes.update(operation.values)
        self._hold(entry)

    def _stage_map_segment(self, operation: MapSegment, time_ms: int) -> None:
        name = operation.name
        name_bytes = len(name.encode())
        if not 0 < name_bytes <= segment_name_bytes_max:
            raise InvalidArgument(f"segment name of {name_bytes} bytes; 1 to {segment_name_bytes_max} are allowed")
        existing = self._find(name)
        if existing is not None and not existing.is_gone:
            raise SegmentExists(name)
        operation.segment_id = self.metadata.next_segment_id
        operation.created_ms = time_ms
        operation.attributes.setdefault(CREATION_TIME, time_ms)
        self.metadata.next_segment_id += 1
        entry = _Staged(operation.segment_id, name, None)
        entry.modified_ms = time_ms
        entry.attributes.update(operation.attributes)
        self._staged_ids[name] = operation.segment_id
        self._hold(entry)

    def _validate_merge(self, operation: Merge, target: str, source: str) -> AttributeValues:
        if target == source:
            raise InvalidArgument(f"{target} cannot be merged into itself")
        target_entry, source_entry = self._live(target), self._live(source)
        if target_entry.is_sealed:
            raise SegmentSealed(target, offset=target_entry.length)
        if source_entry.start_offset > 0:
            raise SegmentTruncated(source, source_entry.start_offset, 0)
        return target_entry.resolve(operation.updates)

    def _stage_merge(self, operation: Merge, target: str, source: str, time_ms: int) -> None:
        values = self._validate_merge(operation, target, source)
        target_entry, source_entry = self._live(target), self._live(source)
        operation.values = [*values, *_merged_events(target_entry, source_entry)]
        check(source_entry.is_sealed, "merge of an open segment", target=target, source=source)
        operation.segment_id = target_entry.segment_id
        operation.source_id = source_entry.segment_id
        operation.offset = target_entry.length
        operation.length = source_entry.length
        operation.time_ms = time_ms
        target_entry.length += source_entry.length
        target_entry.modified_ms = time_ms
        target_entry.attributes.update(operation.values)
        source_entry.merged_into = target_entry.segment_id
        self._go(source_entry)
        self._hold(target_entry)
        self._hold(source_entry)

    def _go(self, entry: _Staged) -> None:
        entry.is_gone = True
        self._staged_ids[entry.name] = -entry.segment_id

    def _stage_other(self, operation: SegmentOperation, segment: str) -> None:
        entry = self._live(segment)
        if type(operation) is Seal:
            if entry.is_sealed:
                raise SegmentSealed(segment, offset=entry.length)
            operation.offset = entry.length
            entry.is_sealed = True
        elif type(operation) is Truncate:
            if not entry.start_offset <= operation.offset <= entry.length:
                raise SegmentTruncated(segment, entry.start_offset, operation.offset)
            entry.start_offset = operation.offset
        elif type(operation) is UpdateAttributes:
            if entry.is_sealed:
                raise SegmentSealed(segment, offset=entry.length)
            operation.values = entry.resolve(operation.updates)
            entry.attributes.update(operation.values)
        elif type(operation) is Delete:
            self._go(entry)
        else:
            unreachable("unknown segment operation", operation=operation)
        operation.segment_id = entry.segment_id
        self._hold(entry)


def initial_attributes(segment: str, updates: Sequence[AttributeUpdate]) -> dict[AttributeId, int]:
    """The attributes of a new segment. Errors as ``resolve_updates``."""
    values = resolve_updates(segment, updates, lambda _: NULL_ATTRIBUTE_VALUE)
    return {attribute_id: value for attribute_id, value in values if value != NULL_ATTRIBUTE_VALUE}


def _merged_events(target: _Staged, source: _Staged) -> AttributeValues:
    """What the target counts for the events of the source, apart from EVENT_COUNT, which a merge leaves alone (5.4).

    A transient segment holds one event, in blocks that were each counted as one.
    """
    if is_transient_segment(source.name):
        events = min(source.length, 1)
    else:
        events = sum(max(source.attribute(counter), 0) for counter in (EVENT_COUNT, MERGED_EVENT_COUNT))
    if not events:
        return ()
    merged = max(target.attribute(MERGED_EVENT_COUNT), 0) + events
    return ((MERGED_EVENT_COUNT, min(merged, attribute_value_max)),)


def _as_metadata(entry: _Staged) -> SegmentMetadata:
    base = entry.base
    attributes = {} if base is None else dict(base.attributes)
    attributes.update(entry.attributes)
    return SegmentMetadata(
        segment_id=entry.segment_id,
        name=entry.name,
        length=entry.length,
        start_offset=entry.start_offset,
        storage_length=0 if base is None else base.storage_length,
        is_sealed=entry.is_sealed,
        is_sealed_in_storage=base is not None and base.is_sealed_in_storage,
        is_merged=entry.is_gone and entry.merged_into != 0,
        merged_into=entry.merged_into,
        is_deleted=entry.is_gone and entry.merged_into == 0,
        last_modified_ms=entry.modified_ms,
        attributes={key: value for key, value in attributes.items() if value != NULL_ATTRIBUTE_VALUE},
    )
