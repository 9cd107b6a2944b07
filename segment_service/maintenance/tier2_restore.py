"""Starts a container from Tier 2 alone, over a new log with a new identity.

Durable steps, in this order: the log begins empty at a higher epoch; a mark with the new identity, and a high water
that no log has; the metadata table says what Tier 2 holds, under the new identity; the log's only operation is a
checkpoint at that high water. Until the last one, every start is refused, and the restore can be made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.data_log import DurableDataLog
from segment_service.contracts.log_identity import new_identity
from segment_service.contracts.operations import Checkpoint
from segment_service.contracts.segment_storage import LogState
from segment_service.contracts.sorted_map import SortedMap, map_changes_bytes_max
from segment_service.durable_log.data_frame_builder import DataFrameBuilder
from segment_service.durable_log.recovery import sequence_gap_per_epoch
from segment_service.durable_log.serializer import serialize
from segment_service.maintenance.read_only import ContainerReader
from segment_service.maintenance.restore_plan import RestoredSegment, RestorePlan, Tier2Contents
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.segment_record import write_record
from segment_service.metadata.snapshot import write_snapshot
from segment_service.metadata_table.metadata_table import flush_count_max, id_key, map_name, name_key, write_length
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.rolling_storage import RollingStorage

LOG_STARTED: Final = register("maintenance.restore.log_started")
MARKED: Final = register("maintenance.restore.marked")
TABLE_FLUSHED: Final = register("maintenance.restore.table_flushed")
TABLE_STAMPED: Final = register("maintenance.restore.table_stamped")
CHECKPOINT_WRITTEN: Final = register("maintenance.restore.checkpoint_written")
TRUNCATED: Final = register("maintenance.restore.truncated")


class LogRestart(Protocol):
    """Begins logs again."""

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        """A log of the container at an epoch of at least ``epoch_min``, initialized; frames that it has are given up by
        the truncation that the caller makes. The caller closes it. ``Unavailable`` if Tier 1 does not answer."""
        ...


class Tier2Restore:
    """Restores one container."""

    def __init__(
        self,
        chunks: ChunkStorage,
        container_id: int,
        logs: LogRestart,
        clock: Clock,
        make_identity: Callable[[], bytes] = new_identity,
    ) -> None:
        self._chunks = chunks
        self._container_id = container_id
        self._logs = logs
        self._clock = clock
        self._make_identity = make_identity
        self._contents = Tier2Contents(ContainerReader(chunks, container_id, clock))

    async def plan(self, log_high_water: int = 0) -> RestorePlan | None:
        """As ``Tier2Contents.plan``; changes nothing."""
        return await self._contents.plan(self._container_id, log_high_water)

    async def carry_out(self, plan: RestorePlan) -> None:
        """Make the container startable. ``Fenced`` if a store took it over meanwhile."""
        log = await self._logs.start_over(self._container_id, plan.epoch_min)
        failpoint(LOG_STARTED)
        storage = RollingStorage(self._chunks, self._container_id, self._clock, background=False, trusts_journals=False)
        maps = SortedRunMaps(self._container_id, self._chunks, storage, self._clock)  # objects may be shared in one
        state = LogState(self._make_identity(), plan.high_water + sequence_gap_per_epoch, plan.next_segment_id)
        try:
            await storage.start(log.epoch, log.check_owner, lambda: state)
            failpoint(MARKED)
            table = maps.sorted_map(map_name)
            await table.open()
            await self._correct(table, state)
            await table.flush({}, state)
            failpoint(TABLE_STAMPED)
            await log.check_owner()
            address = await log.append(self._checkpoint(log.epoch, state))
            failpoint(CHECKPOINT_WRITTEN)
            await log.truncate(address)
            failpoint(TRUNCATED)
        finally:
            await storage.close()
            await log.close()

    async def _correct(self, table: SortedMap, state: LogState) -> None:
        """Let the table say what Tier 2 holds, some thousand entries at a time."""
        changes: dict[bytes, bytes | None] = {}
        size = 0
        async for segment in self._contents.segments():
            if not segment.is_changed:
                continue
            entries = _entries(segment)
            size += sum(len(key) + len(value or b"") for key, value in entries.items())
            changes |= entries
            if len(changes) >= flush_count_max or size > map_changes_bytes_max // 2:
                await table.flush(changes, state)
                failpoint(TABLE_FLUSHED)
                changes, size = {}, 0
        if changes:
            await table.flush(changes, state)
            failpoint(TABLE_FLUSHED)

    def _checkpoint(self, epoch: int, state: LogState) -> list[memoryview | bytes]:
        """The frame of a checkpoint without segments: all of them are in the table."""
        metadata = ContainerMetadata(
            self._container_id, epoch, state.high_water, state.next_segment_id, identity=state.identity
        )
        metadata.table_high_water = state.high_water
        record = serialize(Checkpoint(sequence_number=state.high_water, snapshot=write_snapshot(metadata, ())))
        builder: DataFrameBuilder[None] = DataFrameBuilder(epoch)
        builder.add_checkpoint(record.head, record.body, record.length, None)
        builder.close()
        (frame,) = builder.full
        return [bytes(buffer) for buffer in frame.buffers]


def _entries(segment: RestoredSegment) -> dict[bytes, bytes | None]:
    name, number = name_key(segment.before.name), id_key(segment.before.segment_id)
    if segment.after is None:
        return {name: None, number: None}
    return {name: write_record(segment.after), number: write_length(segment.after.storage_length)}
