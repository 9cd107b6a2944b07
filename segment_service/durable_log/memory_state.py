"""Applies durable operations to the memory of a container: metadata, read index, bytes to flush, memory log."""

from __future__ import annotations

from collections.abc import Sequence

from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.operations import Append, Checkpoint, Delete, Merge, Operation, Seal, Truncate
from segment_service.contracts.read_index import ReadIndex
from segment_service.durable_log.memory_log import MemoryLog
from segment_service.durable_log.metadata_commit import commit_append, commit_operation
from segment_service.metadata.back_pressure import PendingBytes
from segment_service.metadata.container_metadata import ContainerMetadata


class MemoryState:
    """Applies durable operations in log order; never waits. The same in normal work and in recovery."""

    def __init__(
        self,
        metadata: ContainerMetadata,
        memory_log: MemoryLog,
        read_index: ReadIndex,
        pending: PendingBytes,
    ) -> None:
        self.metadata = metadata
        self.memory_log = memory_log
        self.read_index = read_index
        self.pending = pending

    def apply(self, operations: Sequence[Operation]) -> None:
        """Change the metadata by each operation, then the read index; at last show all to the storage writer.

        Successive appends to one segment reach the read index as one: its cost is per frame, not per append.
        """
        metadata = self.metadata
        runs: dict[int, tuple[int, list[Buffer]]] = {}
        for operation in operations:
            if type(operation) is Append:
                self._collect(operation, runs)  # first: it notes what the segment has before it grows
                commit_append(metadata, operation)
                continue
            if runs:
                self._flush_runs(runs)
            commit_operation(metadata, operation)
            self._apply_other(operation)
        if runs:
            self._flush_runs(runs)
        self.memory_log.extend(operations)
        self.pending.operations_added(len(operations))

    def acknowledged(self, up_to: int) -> bool:
        """The storage writer is through with all operations up to this sequence number: forget some of them. Whether
        there are more."""
        before = len(self.memory_log)
        has_more = self.memory_log.truncate(up_to)
        self.pending.operations_acknowledged(before - len(self.memory_log))
        return has_more

    def _collect(self, operation: Append, runs: dict[int, tuple[int, list[Buffer]]]) -> None:
        data = operation.data
        if data is None:
            check(False, "an append without bytes cannot be applied", operation=operation)
            return
        operation.data = None
        length = operation.length
        if not length:
            self.metadata.changes.note(operation.segment_id)  # no byte of it goes to Tier 2, which would be noted
            return
        segment_id = operation.segment_id
        self.pending.committed(segment_id, length)
        run = runs.get(segment_id)
        if run is None:
            runs[segment_id] = (operation.offset, list(data))
            metadata = self.metadata
            if segment_id not in metadata.growth.before:
                metadata.growth.grows(metadata.segments[segment_id])
        else:
            run[1].extend(data)

    def _flush_runs(self, runs: dict[int, tuple[int, list[Buffer]]]) -> None:
        for segment_id, (offset, data) in runs.items():
            self.read_index.append(segment_id, offset, data)
        runs.clear()

    def _apply_other(self, operation: Operation) -> None:
        if isinstance(operation, Seal):
            self.read_index.seal(operation.segment_id)
        elif isinstance(operation, Truncate):
            self.read_index.truncate(operation.segment_id, operation.offset)
        elif isinstance(operation, Merge):
            self.pending.merged(operation.segment_id, operation.source_id)
            self.read_index.merge(operation.segment_id, operation.offset, operation.source_id, operation.length)
        elif isinstance(operation, Delete):
            self.pending.deleted(operation.segment_id)
            self.read_index.delete(operation.segment_id)
        elif isinstance(operation, Checkpoint):
            operation.snapshot = b""
