"""Reads the log of a container without taking it over: nobody is fenced, nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from pravega_common.errors import DataCorruption, Unavailable
from segment_service.container.log_verification import find_contradiction
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.contracts.log_identity import unknown_identity
from segment_service.contracts.operations import ActivateSegment, Checkpoint, Delete, MapSegment, Merge, Operation
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.durable_log.data_frame_reader import DataFrameReader
from segment_service.durable_log.recovery import Recovered
from segment_service.durable_log.serializer import deserialize
from segment_service.maintenance.findings import LogFacts
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.snapshot import read_snapshot


class LogChanged(Exception):
    """The log's owner freed, or fenced, what was being read: read it again from its new beginning.

    ``is_loss``: if the next reading says the same, it is lost; its owner would have gone on.
    """

    def __init__(self, text: str, *, is_loss: bool = False) -> None:
        self.is_loss = is_loss
        super().__init__(text)


class LogSource(Protocol):
    """Reads logs that others may be writing."""

    def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        """The frames that count, from the truncation point to the end as it is at some moment after the call; none of
        a container without a log. ``LogChanged`` if the owner freed what was being read, ``Unavailable`` if too few
        servers answer, ``DataCorruption`` for a log that is damaged or not all there, ``ConfigurationError`` if some of
        it is where the settings do not lead."""
        ...


read_attempts_max: Final = 10
"""How often a log is read again because its owner freed what was being read."""


@dataclass(slots=True)
class LogSummary:
    """Sums up a reading of a log."""

    identity: bytes = unknown_identity
    epoch: int = 0
    first_operation: int = 0
    last_operation: int = 0
    operations: int = 0
    next_segment_id: int = 1
    table_high_water: int = 0
    frames: int = 0
    length: int = 0
    gone: set[int] = field(default_factory=set)
    """Ids of the segments that were deleted or merged away, as far as the log still tells."""

    def facts(self) -> LogFacts:
        return LogFacts(
            self.identity.hex(),
            self.epoch,
            self.first_operation,
            self.last_operation,
            self.next_segment_id,
            self.frames,
            self.length,
            self.table_high_water,
        )

    def contradiction(
        self, container_id: int, mark: EpochMark | None, first_object: str, table: LogState | None
    ) -> str | None:
        """As ``find_contradiction`` at a start of the container, of a mark and a table read before the log."""
        metadata = ContainerMetadata(container_id, identity=self.identity, next_segment_id=self.next_segment_id)
        metadata.table_high_water = self.table_high_water if table is None else 0
        recovered = Recovered(
            operations=self.operations, last_sequence_number=self.last_operation, last_epoch=self.epoch
        )
        return find_contradiction(metadata, recovered, mark, first_object, table)

    def take(self, operation: Operation) -> None:
        """Learn from the next operation of the log."""
        self.operations += 1
        self.first_operation = self.first_operation or operation.sequence_number
        self.last_operation = operation.sequence_number
        if isinstance(operation, Checkpoint):
            self._take_snapshot(read_snapshot(operation.snapshot))
        elif isinstance(operation, MapSegment | ActivateSegment):
            self.next_segment_id = max(self.next_segment_id, operation.segment_id + 1)
        elif isinstance(operation, Delete):
            self.gone.add(operation.segment_id)
        elif isinstance(operation, Merge):
            self.gone.add(operation.source_id)

    def _take_snapshot(self, snapshot: ContainerMetadata) -> None:
        if snapshot.identity != unknown_identity:
            self.identity = snapshot.identity
        self.next_segment_id = max(self.next_segment_id, snapshot.next_segment_id)
        self.table_high_water = max(self.table_high_water, snapshot.table_high_water)
        self.gone.update(segment_id for segment_id, _ in snapshot.changes.gone())
        self.gone.update(one.segment_id for one in snapshot.segments.values() if one.is_deleted or one.is_merged)


async def summarize(source: LogSource, container_id: int) -> LogSummary:
    """Read the whole log. ``Unavailable`` if it keeps being truncated faster than it is read."""
    last = ""
    for _ in range(read_attempts_max):
        summary, reader = LogSummary(), DataFrameReader()
        try:
            async for entry in source.read(container_id):
                summary.frames += 1
                summary.length += len(entry.payload)
                for operation in _operations(reader, entry):
                    summary.take(operation)
        except LogChanged as error:
            if error.is_loss and str(error) == last:
                raise DataCorruption(last) from error
            last = str(error)
            continue
        summary.epoch = reader.epoch
        return summary
    raise Unavailable(f"the log of container {container_id} keeps being truncated while it is read: try again")


def _operations(reader: DataFrameReader, entry: LogEntry) -> Iterator[Operation]:
    for record in reader.feed(entry):
        yield deserialize(record.data)


def begins_at(entry: LogEntry, expected: LogAddress) -> None:
    """``DataCorruption`` unless the log begins with this entry."""
    if entry.address != expected:
        raise DataCorruption(f"the first frame is at {entry.address}, the log begins at {expected}: frames are missing")
