"""Validates requests one after the other, against what is committed and what is still on its way to Tier 1.

``stage`` decides a request: it refuses it, or resolves it into the operation to log, with sequence number, ids,
offsets and attribute values, and remembers the effect on top of the committed metadata. ``release`` drops what was
remembered once the operation is durable and part of the metadata. Operations become durable in the order in which they
were staged; when one cannot, nothing staged can, and ``rollback`` forgets it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pravega_common.errors import (
    BadOffset,
    InvalidArgument,
    SegmentExists,
    SegmentMerged,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnsupportedOperation,
)
from pravega_common.invariants import check, unreachable
from pravega_common.names import is_transient_segment
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    CREATION_TIME,
    EVENT_COUNT,
    MERGED_EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    SEGMENT_TYPE,
    TABLE_TYPES,
    AttributeId,
    AttributeUpdate,
    is_core,
)
from segment_service.contracts.evicted_attributes import EvictedAttributes
from segment_service.contracts.inactive_segments import InactiveSegments
from segment_service.contracts.merge_records import MergeRecord, MergeRecords, forget_old, remember, source_key
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
    SegmentOperation,
    Truncate,
    UpdateAttributes,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.attribute_updates import attribute_value_max, resolve_updates
from segment_service.durable_log.requests import (
    AnyRequest,
    AppendRequest,
    BarrierRequest,
    CheckpointRequest,
    CreateRequest,
    DeleteRequest,
    MergeRequest,
    SealRequest,
    TruncateRequest,
    UpdateAttributesRequest,
    names_in,
)
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.held_attributes import is_missing
from segment_service.metadata.segment_record import write_record
from segment_service.metadata.snapshot import write_snapshot

segment_name_bytes_max: Final = 4_096
"""UTF-8 bytes of a segment's name."""

Need = str | tuple[int, AttributeId]
"""What must be brought to memory: the segment of a name, or an attribute of the segment with this id."""


class _Staged:
    """A segment as it will be when everything staged is durable."""

    __slots__ = (
        "attributes",
        "base",
        "is_gone",
        "is_sealed",
        "length",
        "merged_into",
        "merges",
        "modified_ms",
        "name",
        "pending",
        "segment_id",
        "settling",
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
        self.settling: dict[AttributeId, int] | None = None
        """Older values, which are forgotten once they are committed."""
        self.merges: MergeRecords | None = None
        """What was merged into it and is not committed yet."""
        self.pending = 0
        """Staged operations not yet committed; at zero this object is dropped."""

    def attribute(self, attribute_id: AttributeId) -> int:
        value = self.attributes.get(attribute_id)
        if value is None and self.settling is not None:
            value = self.settling.get(attribute_id)
        if value is None:
            if self.base is None:
                return NULL_ATTRIBUTE_VALUE
            value = self.base.attributes.get(attribute_id)
            if value is None:
                if is_missing(self.base, attribute_id):
                    raise AttributeNotHeld(self.base, attribute_id)
                return NULL_ATTRIBUTE_VALUE
        return value

    def has_attribute(self, attribute_id: AttributeId) -> bool:
        """Whether a value that is not committed may be known."""
        return attribute_id in self.attributes or (self.settling is not None and attribute_id in self.settling)

    def merge_of(self, source: str) -> MergeRecord | None:
        """The record of an earlier merge of ``source`` into this segment."""
        committed = None if self.base is None else self.base.merges
        if not self.merges and not committed:
            return None
        key = source_key(source)
        return (self.merges or {}).get(key) or (committed or {}).get(key)

    def resolve(self, updates: Sequence[AttributeUpdate]) -> AttributeValues:
        return resolve_updates(self.name, updates, self.attribute)

    def missing(self, updates: Sequence[AttributeUpdate]) -> list[AttributeId]:
        """The attributes in these updates that must be brought to memory first."""
        base = self.base
        ids = dict.fromkeys(update.attribute_id for update in updates)
        return [
            one
            for one in ids
            if base is not None and not self.has_attribute(one) and one not in base.attributes and is_missing(base, one)
        ]


class SegmentInactive(Exception):
    """A request names a segment that is not in memory and may be in the metadata table."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class AttributeNotHeld(Exception):
    """A request needs a writer's attribute that is not in memory and may be in the attribute index."""

    def __init__(self, segment: SegmentMetadata, attribute_id: AttributeId) -> None:
        super().__init__(segment.name, attribute_id)
        self.segment = segment


class SegmentNotLogged(Exception):
    """A request is about a segment that came back from the metadata table: the log must have its state first."""

    def __init__(self, segment: SegmentMetadata) -> None:
        super().__init__(segment.name)
        self.segment = segment


class OperationMetadataUpdater:
    """Staged and committed metadata of one container. Never waits."""

    def __init__(self, metadata: ContainerMetadata) -> None:
        self.metadata = metadata
        self.inactive: InactiveSegments | None = None
        """Segments that are not in memory; ``None`` if all are."""
        self.evicted: EvictedAttributes | None = None
        """Attributes that are not in memory; ``None`` if all are."""
        self._staged: dict[int, _Staged] = {}
        self._activating: set[int] = set()
        """Segments whose state is on its way to the log."""
        self._staged_ids: dict[str, int] = {}
        """Names that staged operations map (id) or unmap (minus the id that is going)."""

    def stage(self, request: AnyRequest, time_ms: int) -> Operation:
        """Resolve a request into its operation; raises a ``RejectedError``, or ``SegmentDamaged``, and changes
        nothing if it is refused.

        ``SegmentInactive``, ``SegmentNotLogged`` and ``AttributeNotHeld`` say what must be done first; then the request
        is staged again.
        A merge needs its source sealed: the caller stages a ``SealRequest`` first when ``needs_seal`` says so.
        """
        number = self.metadata.sequence_number + 1
        if type(request) is AppendRequest:
            operation: Operation = self._stage_append(request, number, time_ms)
        elif type(request) is CreateRequest:
            operation = self._stage_create(request, number, time_ms)
        elif type(request) is MergeRequest:
            operation = self._stage_merge(request, number, time_ms)
        elif type(request) is CheckpointRequest:
            operation = self._stage_checkpoint(number, time_ms)
        elif type(request) is BarrierRequest:
            operation = Barrier(sequence_number=number)
        else:
            operation = self._stage_other(request, number)
        self.metadata.sequence_number = number
        return operation

    def stage_activation(self, segment: SegmentMetadata) -> ActivateSegment:
        """Log the state of a segment that came back from the metadata table."""
        self.metadata.sequence_number += 1
        segment.is_logged = True
        self._activating.add(segment.segment_id)
        return ActivateSegment(
            sequence_number=self.metadata.sequence_number,
            segment_id=segment.segment_id,
            record=write_record(segment),
        )

    def is_staged(self, segment_id: int) -> bool:
        """Whether an operation on the segment is on its way to the log."""
        return segment_id in self._staged or segment_id in self._activating

    def missing_attributes(self, segment: SegmentMetadata, updates: Sequence[AttributeUpdate]) -> list[AttributeId]:
        """The attributes in these updates of a segment that are not in memory and may be in the attribute index."""
        entry = self._staged.get(segment.segment_id) or _Staged(segment.segment_id, segment.name, segment)
        return entry.missing(updates)

    def needs(self, request: AnyRequest) -> set[Need]:
        """Returns all that must be brought to memory before the request is staged, as far as can be told now."""
        names = names_in(request)
        needed: set[Need] = {name for name in names if self._may_be_inactive(name)}
        if isinstance(request, AppendRequest | UpdateAttributesRequest | MergeRequest):
            segment = self.metadata.by_name(names[0]) if names and names[0] not in self._staged_ids else None
            if segment is not None:
                missing = self.missing_attributes(segment, request.updates)
                needed.update((segment.segment_id, attribute_id) for attribute_id in missing)
        return needed

    def is_attribute_staged(self, segment_id: int, attribute_id: AttributeId) -> bool:
        """Whether an operation on the attribute may be on its way to the log."""
        entry = self._staged.get(segment_id)
        return entry is not None and entry.has_attribute(attribute_id)

    def settle(self, segment_id: int) -> None:
        """Begin to forget the staged attributes of a segment that never comes to rest: ``settled`` follows, after an
        operation that is staged from now on was committed."""
        entry = self._staged.get(segment_id)
        if entry is not None:
            entry.settling = {**(entry.settling or {}), **entry.attributes}
            entry.attributes = {}

    def settled(self, segment_id: int) -> None:
        """Forget values from before ``settle``, which are committed."""
        entry = self._staged.get(segment_id)
        if entry is not None:
            entry.settling = None

    def needs_seal(self, merge: MergeRequest) -> bool:
        """Whether the source of a merge is open; raises like ``stage`` if the merge would be refused anyway."""
        _, source, _ = self._validate_merge(merge)
        return not source.is_sealed

    def release(self, operations: Iterable[Operation]) -> None:
        """Drop what is remembered of operations that are part of the committed metadata."""
        for operation in operations:
            if type(operation) is Append:
                self._release(operation.segment_id)
            elif isinstance(operation, SegmentOperation):
                self._release_other(operation)
            elif type(operation) is ActivateSegment:
                self._activating.discard(operation.segment_id)

    def _release_other(self, operation: SegmentOperation) -> None:
        segment_id = operation.segment_id
        if type(operation) is MapSegment:
            self._release(segment_id, self.metadata.segments[segment_id])
            if self._staged_ids.get(operation.name) == segment_id:
                del self._staged_ids[operation.name]
            return
        self._release(segment_id)
        if type(operation) is Merge:
            self._release(operation.source_id)
            self._forget_name(operation.source_id)
        elif type(operation) is Delete:
            self._forget_name(segment_id)

    def rollback(self) -> None:
        """Forget all that is staged: none of it will become durable."""
        self._staged.clear()
        self._activating.clear()
        self._staged_ids.clear()

    def staged_segments(self) -> list[SegmentMetadata]:
        """The segments in memory, but for those that were only read, as they will be when everything staged is durable,
        for a checkpoint."""
        staged = self._staged
        segments = self.metadata.segments.values()
        result = [segment for segment in segments if segment.segment_id not in staged and segment.is_logged]
        result.extend(_as_metadata(entry) for entry in staged.values())
        return result

    def _find(self, name: str) -> _Staged | None:
        segment_id = self._staged_ids.get(name) if self._staged_ids else None
        if segment_id is None:
            segment_id = self.metadata.ids.get(name)
        if segment_id is None:
            if self._may_be_inactive(name):
                raise SegmentInactive(name)
            return None
        if segment_id < 0:
            return None
        entry = self._staged.get(segment_id)
        if entry is not None:
            return entry
        base = self.metadata.segments[segment_id]
        if not base.is_logged:
            raise SegmentNotLogged(base)
        return _Staged(segment_id, name, base)

    def _may_be_inactive(self, name: str) -> bool:
        """Whether nothing can be said of a name before the metadata table was asked."""
        is_known = name in self._staged_ids or name in self.metadata.ids
        return not is_known and self.inactive is not None and self.inactive.may_have(name)

    def _live(self, name: str) -> _Staged:
        entry = self._find(name)
        if entry is None or entry.is_gone:
            raise SegmentNotFound(name)
        return entry

    def _whole(self, name: str) -> _Staged:
        """A live segment whose bytes in Tier 2 are not known to be damaged; else ``SegmentDamaged``."""
        entry = self._live(name)
        if self.metadata.quarantine:
            self.metadata.quarantine.check(entry.segment_id)
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

    def _stage_append(self, request: AppendRequest, number: int, time_ms: int) -> Append:
        entry = self._whole(request.segment)
        offset = entry.length
        if entry.is_sealed:
            raise SegmentSealed(request.segment, offset=offset)
        values = entry.resolve(request.updates) if request.updates else ()
        if request.expected_offset is not None and request.expected_offset != offset:
            raise BadOffset(request.segment, offset, request.expected_offset)
        entry.length += request.length
        entry.modified_ms = time_ms
        if values:
            entry.attributes.update(values)
        self._hold(entry)
        return Append(
            sequence_number=number,
            segment_id=entry.segment_id,
            offset=offset,
            length=request.length,
            data=request.data,
            values=values,
            time_ms=time_ms,
        )

    def _stage_create(self, request: CreateRequest, number: int, time_ms: int) -> MapSegment:
        name = request.segment
        name_bytes = len(name.encode())
        if not 0 < name_bytes <= segment_name_bytes_max:
            raise InvalidArgument(f"segment name of {name_bytes} bytes; 1 to {segment_name_bytes_max} are allowed")
        existing = self._find(name)
        if existing is not None and not existing.is_gone:
            raise SegmentExists(name)
        segment_id = self.metadata.next_segment_id
        self.metadata.next_segment_id += 1
        attributes = dict(request.attributes)
        attributes.setdefault(CREATION_TIME, time_ms)
        entry = _Staged(segment_id, name, None)
        entry.modified_ms = time_ms
        entry.attributes.update(attributes)
        self._staged_ids[name] = segment_id
        self._hold(entry)
        return MapSegment(
            sequence_number=number, segment_id=segment_id, name=name, created_ms=time_ms, attributes=attributes
        )

    def _validate_merge(self, request: MergeRequest) -> tuple[_Staged, _Staged, AttributeValues]:
        """Target, source, and what the updates make of the target's attributes."""
        if request.target == request.source:
            raise InvalidArgument(f"{request.target} cannot be merged into itself")
        target, missing = self._whole(request.target), self._find(request.source)
        if missing is None or missing.is_gone:
            merged = target.merge_of(request.source)
            if merged is None:
                raise SegmentNotFound(request.source)
            raise SegmentMerged(request.source, merged.target_length)
        source = self._whole(request.source)
        if source.attribute(SEGMENT_TYPE) in TABLE_TYPES:
            raise UnsupportedOperation(f"{request.source} is the segment of a table, which is merged into no other")
        if target.is_sealed:
            raise SegmentSealed(request.target, offset=target.length)
        if source.start_offset > 0:
            raise SegmentTruncated(request.source, source.start_offset, 0)
        return target, source, target.resolve(request.updates)

    def _stage_merge(self, request: MergeRequest, number: int, time_ms: int) -> Merge:
        target, source, updated = self._validate_merge(request)
        check(source.is_sealed, "merge of an open segment", target=request.target, source=request.source)
        merge = Merge(
            sequence_number=number,
            segment_id=target.segment_id,
            source_id=source.segment_id,
            offset=target.length,
            length=source.length,
            values=[*updated, *_merged_events(target, source)],
            time_ms=time_ms,
        )
        target.length += source.length
        target.modified_ms = time_ms
        target.attributes.update(merge.values)
        if target.merges is None:
            target.merges = {}
        target.merges[source_key(source.name)] = MergeRecord(target.length, time_ms)
        source.merged_into = target.segment_id
        self._go(source)
        self._hold(target)
        self._hold(source)
        return merge

    def _go(self, entry: _Staged) -> None:
        entry.is_gone = True
        self._staged_ids[entry.name] = -entry.segment_id

    def _stage_checkpoint(self, number: int, time_ms: int) -> Checkpoint:
        for segment in self.metadata.segments.values():
            if segment.merges:
                forget_old(segment.merges, time_ms)
        self.metadata.sequence_number = number  # the snapshot holds its own number
        return Checkpoint(sequence_number=number, snapshot=write_snapshot(self.metadata, self.staged_segments()))

    def _stage_other(self, request: AnyRequest, number: int) -> SegmentOperation:
        if type(request) is SealRequest:
            entry = self._open(self._whole(request.segment).name)
            entry.is_sealed = True
            operation: SegmentOperation = Seal(sequence_number=number, segment_id=entry.segment_id, offset=entry.length)
        elif type(request) is TruncateRequest:
            entry = self._whole(request.segment)
            if not entry.start_offset <= request.offset <= entry.length:
                raise SegmentTruncated(request.segment, entry.start_offset, request.offset)
            entry.start_offset = request.offset
            operation = Truncate(sequence_number=number, segment_id=entry.segment_id, offset=request.offset)
        elif type(request) is UpdateAttributesRequest:
            known = self._staged_ids.get(request.segment, self.metadata.ids.get(request.segment))
            if request.segment_id not in (None, known):
                raise SegmentNotFound(request.segment)
            entry = self._open(request.segment)
            values = entry.resolve(request.updates)
            entry.attributes.update(values)
            operation = UpdateAttributes(sequence_number=number, segment_id=entry.segment_id, values=values)
        elif type(request) is DeleteRequest:
            entry = self._live(request.segment)
            self._go(entry)
            operation = Delete(sequence_number=number, segment_id=entry.segment_id)
        else:
            unreachable("unknown request", request=request)
        self._hold(entry)
        return operation

    def _open(self, name: str) -> _Staged:
        """A live segment that is not sealed; raises ``SegmentSealed`` for one that is."""
        entry = self._live(name)
        if entry.is_sealed:
            raise SegmentSealed(name, offset=entry.length)
        return entry


def initial_attributes(segment: str, updates: Sequence[AttributeUpdate]) -> dict[AttributeId, int]:
    """The attributes of a new segment. Errors as ``resolve_updates``."""
    values = resolve_updates(segment, updates, lambda _: NULL_ATTRIBUTE_VALUE)
    return {attribute_id: value for attribute_id, value in values if value != NULL_ATTRIBUTE_VALUE}


def _merged_events(target: _Staged, source: _Staged) -> AttributeValues:
    """The events of the source that the target counts as merged; EVENT_COUNT stays as it is.

    See docs/wire-protocol.md 5.4.

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
    attributes.update(entry.settling or {})
    attributes.update(entry.attributes)
    has_index = ATTRIBUTES_IN_TIER2 in attributes
    merges = dict(base.merges) if base is not None and base.merges else {}
    for key, record in (entry.merges or {}).items():
        remember(merges, key, record)
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
        attributes={
            key: value
            for key, value in attributes.items()
            if value != NULL_ATTRIBUTE_VALUE or (has_index and not is_core(key))
        },
        merges=merges or None,
        # Until the deletion is committed, the segment may get an entry.
        in_table=entry.is_gone or (base is not None and base.in_table),
    )
