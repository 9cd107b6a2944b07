"""Connects the storage writer with its container."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pravega_common.invariants import check
from segment_service.contracts.operations import Operation
from segment_service.contracts.read_index import ReadIndex
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.durable_log import DurableLog
from segment_service.metadata.back_pressure import PendingBytes
from segment_service.metadata.container_metadata import ContainerMetadata


class ContainerDataSource:
    """``WriterDataSource`` over the parts of a container."""

    def __init__(
        self, metadata: ContainerMetadata, durable_log: DurableLog, read_index: ReadIndex, pending: PendingBytes
    ) -> None:
        self._metadata = metadata
        self._durable_log = durable_log
        self._read_index = read_index
        self._pending = pending
        self.on_gone: Callable[[SegmentMetadata], None] = lambda segment: None
        """Called when Tier 2 has nothing of a segment any more that was deleted or merged; again after a crash."""

    @property
    def container_id(self) -> int:
        return self._metadata.container_id

    @property
    def epoch(self) -> int:
        return self._durable_log.epoch

    @property
    def recovered_sequence_number(self) -> int:
        return self._durable_log.recovered.sequence_number

    async def read_operations(self, after: int, count_max: int) -> Sequence[Operation]:
        return await self._durable_log.read(after, count_max)

    def segment(self, segment_id: int) -> SegmentMetadata | None:
        return self._metadata.segments.get(segment_id)

    def truncated_below(self, segment_id: int) -> int:
        return self._read_index.truncated_below(segment_id)

    def read_cached(self, segment_id: int, offset: int, length: int) -> list[memoryview]:
        return self._read_index.read_cached(segment_id, offset, length)

    def storage_length_changed(self, segment_id: int, length: int) -> None:
        segment = self._metadata.segments.get(segment_id)
        if segment is None or length <= segment.storage_length:
            return
        segment.set_storage_length(length)
        self._pending.flushed(segment)
        self._read_index.storage_length_changed(segment_id)
        self._metadata.changes.note(segment_id)

    def sealed_in_storage(self, segment_id: int) -> None:
        segment = self._metadata.segments.get(segment_id)
        if segment is not None:
            segment.is_sealed_in_storage = True
            if not segment.is_deleted and not segment.is_merged:
                self._metadata.changes.note(segment_id)

    def merged_in_storage(self, target_id: int, source_id: int, target_length: int) -> None:
        source = self._metadata.segments.pop(source_id, None)
        check(source is None or source.is_merged, "Tier 2 merged a segment that the log did not merge", source=source)
        self._metadata.quarantine.forget(source_id)
        self._read_index.merge_completed(target_id, source_id)
        if source is not None:
            self.on_gone(source)
        self.storage_length_changed(target_id, target_length)

    def deleted_in_storage(self, segment_id: int) -> None:
        segment = self._metadata.segments.pop(segment_id, None)
        check(segment is None or segment.is_deleted, "Tier 2 deleted a segment that is alive", segment=segment)
        self._metadata.quarantine.forget(segment_id)
        if segment is not None:
            self.on_gone(segment)

    def hold(self, segment_id: int, reason: str) -> None:
        segment = self._metadata.segments.get(segment_id)
        self._metadata.quarantine.hold(segment_id, f"#{segment_id}" if segment is None else segment.name, reason)

    def free(self, segment_id: int) -> None:
        self._metadata.quarantine.free(segment_id)

    def unreadable_reason(self, segment_id: int) -> str | None:
        return self._metadata.quarantine.unreadable_reason(segment_id)

    async def acknowledge(self, sequence_number: int) -> None:
        await self._durable_log.acknowledge(sequence_number)

    async def check_owner(self) -> None:
        await self._durable_log.check_owner()
