"""Rebuilds a container's state from its log: data frames, records, operations, memory.

The first operation in a log is always a checkpoint: the log was truncated there, so everything before it is in
Tier 2 (or the log is new, and the checkpoint is empty). Later checkpoints teach nothing about the segments that the
operations do not, except how far Tier 2 had come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2
from segment_service.contracts.data_log import DurableDataLog, LogAddress
from segment_service.contracts.log_identity import unknown_identity
from segment_service.contracts.operations import Append, Checkpoint, MapSegment, Merge, Operation, SegmentOperation
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.data_frame_reader import DataFrameReader, ReadRecord
from segment_service.durable_log.memory_state import MemoryState
from segment_service.durable_log.serializer import deserialize
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.snapshot import read_snapshot_in_slices

sequence_gap_per_epoch: Final = 1 << 20
"""Sequence numbers that a new epoch leaves out: more than the last owner could have had on their way, so that a
number of an operation that was lost is never used again."""

steps_per_clock_reading: Final = 32
"""Records that are replayed, or segments of a checkpoint, between two looks at the clock: far less than a slice."""


@dataclass(slots=True)
class Recovered:
    """The result of a recovery."""

    operations: int = 0
    appended_bytes: int = 0
    frames: int = 0
    sequence_number: int = 0
    """No operation of an earlier owner has a greater one, every operation of this owner has."""
    last_sequence_number: int = 0
    """Number of the last operation in the log, before the gap; 0 for an empty log."""
    last_epoch: int = 0
    """Epoch of the owner that wrote the last frame; 0 for an empty log."""
    truncation_points: list[tuple[int, LogAddress]] = field(default_factory=list)
    """Sequence numbers of checkpoints, with the address of the frame that each begins; ascending."""


async def recover(log: DurableDataLog, state: MemoryState, clock: Clock) -> Recovered:
    """Read the whole log into ``state``; ``DataCorruption`` if anything in it does not fit."""
    reader = DataFrameReader()
    recovered = Recovered()
    slices = TimeSlices(clock, steps_per_clock_reading)
    async for entry in log.read():
        recovered.frames += 1
        for record in reader.feed(entry):
            await _replay(record, state, recovered, slices)
            await slices.step()
    recovered.last_epoch = reader.epoch
    if reader.epoch > log.epoch:
        raise DataCorruption(
            f"container {log.container_id}: the log has frames of epoch {reader.epoch}, this owner got epoch "
            f"{log.epoch}: the CPO went back"
        )
    for segment in state.metadata.segments.values():
        segment.recovered_length = segment.length
        segment.in_table = True  # an earlier owner may have put it there
        if ATTRIBUTES_IN_TIER2 in segment.attributes:
            # Memory has what changed since, and the index of a backup is as old: what is written from now on must not
            # ask for a newer one.
            segment.attributes[ATTRIBUTES_IN_TIER2] = segment.index_high_water
        if not segment.is_deleted and not segment.is_merged:
            state.metadata.changes.note(segment.segment_id)
        await slices.step()
    state.metadata.changes.knows_table = True
    state.metadata.epoch = log.epoch
    recovered.last_sequence_number = state.metadata.sequence_number
    if recovered.operations:
        state.metadata.sequence_number += sequence_gap_per_epoch
    recovered.sequence_number = state.metadata.sequence_number
    return recovered


async def _replay(record: ReadRecord, state: MemoryState, recovered: Recovered, slices: TimeSlices) -> None:
    operation = deserialize(record.data)
    metadata = state.metadata
    if operation.sequence_number <= metadata.sequence_number:
        raise DataCorruption(
            f"container {metadata.container_id}: operation {operation.sequence_number} follows "
            f"{metadata.sequence_number} in the log"
        )
    is_first = recovered.operations == 0
    if is_first and not isinstance(operation, Checkpoint):
        raise DataCorruption(f"container {metadata.container_id}: the log does not begin with a checkpoint")
    recovered.operations += 1
    if isinstance(operation, Checkpoint):
        snapshot = await _snapshot_of(operation, metadata.container_id, slices)
        metadata.table_high_water = max(metadata.table_high_water, snapshot.table_high_water)
        if is_first:
            await _start_from(snapshot, metadata, slices)
        else:
            _learn_identity(snapshot, metadata)
            await _learn_storage_state(snapshot, state, slices)
        if record.begins_frame:
            recovered.truncation_points.append((operation.sequence_number, record.address))
    elif isinstance(operation, Append):
        recovered.appended_bytes += operation.length
        state.pending.accepted(operation.length)
    metadata.sequence_number = operation.sequence_number
    _check_segments_known(operation, metadata)
    state.apply([operation])


def _check_segments_known(operation: Operation, metadata: ContainerMetadata) -> None:
    """``DataCorruption`` if an operation is about a segment that nothing in the log created."""
    if not isinstance(operation, SegmentOperation) or isinstance(operation, MapSegment):
        return
    used = (operation.segment_id, operation.source_id) if isinstance(operation, Merge) else (operation.segment_id,)
    for segment_id in used:
        if segment_id not in metadata.segments:
            raise DataCorruption(
                f"container {metadata.container_id}: {type(operation).__name__} {operation.sequence_number} is about "
                f"the unknown segment id {segment_id}"
            )


async def _snapshot_of(operation: Checkpoint, container_id: int, slices: TimeSlices) -> ContainerMetadata:
    snapshot = await read_snapshot_in_slices(operation.snapshot, slices)
    if snapshot.container_id != container_id:
        raise DataCorruption(f"container {container_id}: checkpoint of container {snapshot.container_id} in its log")
    if snapshot.sequence_number != operation.sequence_number:
        raise DataCorruption(
            f"container {container_id}: checkpoint {operation.sequence_number} holds the state at "
            f"{snapshot.sequence_number}"
        )
    return snapshot


async def _start_from(snapshot: ContainerMetadata, metadata: ContainerMetadata, slices: TimeSlices) -> None:
    """Take over the first checkpoint. All that precedes it is in Tier 2, whatever was known when it was written."""
    metadata.identity = snapshot.identity
    metadata.next_segment_id = metadata.next_segment_id_durable = snapshot.next_segment_id
    metadata.ids = snapshot.ids
    metadata.segments = {}
    for gone_id, name in snapshot.changes.gone():
        metadata.changes.add_gone(gone_id, name)
    for segment_id in snapshot.ids.values():
        segment = snapshot.segments[segment_id]
        segment.storage_length = segment.length
        segment.is_sealed_in_storage = segment.is_sealed
        segment.check_invariants()
        metadata.segments[segment_id] = segment
        await slices.step()


def _learn_identity(snapshot: ContainerMetadata, metadata: ContainerMetadata) -> None:
    """A log whose first checkpoints are older than identities got one at a later start; it never changes again."""
    if metadata.identity not in (unknown_identity, snapshot.identity):
        raise DataCorruption(
            f"container {metadata.container_id}: checkpoint {snapshot.sequence_number} is of the log "
            f"{snapshot.identity.hex()}, those before it are of the log {metadata.identity.hex()}"
        )
    metadata.identity = snapshot.identity


async def _learn_storage_state(snapshot: ContainerMetadata, state: MemoryState, slices: TimeSlices) -> None:
    """A live segment that a checkpoint beside a metadata table lacks had left memory: Tier 2 had all of it."""
    leaves_out_inactive = snapshot.table_high_water > 0
    if leaves_out_inactive:
        # The others' entries were removed, and later segments of their names may be in the table and nowhere else.
        state.metadata.changes.keep_gone({*dict(snapshot.changes.gone()), *snapshot.segments})
    unknown = snapshot.segments.keys() - state.metadata.segments.keys()
    if any(not snapshot.segments[one].is_deleted and not snapshot.segments[one].is_merged for one in unknown):
        raise DataCorruption(
            f"checkpoint {snapshot.sequence_number} has segments that nothing before it in the log created: {unknown}"
        )
    for segment in list(state.metadata.segments.values()):
        known = snapshot.segments.get(segment.segment_id)
        if known is None and leaves_out_inactive and not segment.is_merged and not segment.is_deleted:
            _learn_stored(segment, state, segment.length, is_sealed=segment.is_sealed)
            segment.is_logged = False  # not in a log that is truncated here
        elif known is None:
            _forget(segment, state)
        else:
            _learn_stored(segment, state, known.storage_length, is_sealed=known.is_sealed_in_storage)
        await slices.step()


def _learn_stored(segment: SegmentMetadata, state: MemoryState, storage_length: int, *, is_sealed: bool) -> None:
    """Tier 2 had the segment up to this length."""
    if storage_length > segment.storage_length:
        segment.set_storage_length(storage_length)
        segment.is_sealed_in_storage = is_sealed
        state.pending.flushed(segment)
        state.read_index.storage_length_changed(segment.segment_id)


def _forget(segment: SegmentMetadata, state: MemoryState) -> None:
    """Tier 2 was through with a merged or deleted segment when the checkpoint was written."""
    if not segment.is_merged and not segment.is_deleted:
        raise DataCorruption(f"segment {segment.name} is missing from a checkpoint, but nothing deleted it")
    if segment.is_merged:
        state.read_index.merge_completed(segment.merged_into, segment.segment_id)
    del state.metadata.segments[segment.segment_id]
