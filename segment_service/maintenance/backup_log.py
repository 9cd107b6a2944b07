"""Copies a container's log while its owner writes it, and reads the copy as a restored container will.

A checkpoint says how far Tier 2 had come. One that was written after the copy of Tier 2 began may say more than that
copy has, so it does not count: a barrier with its number stands in its place. The operations say everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption, Unavailable
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.contracts.operations import Barrier, Checkpoint, Delete, Merge, Operation
from segment_service.durable_log.data_frame_builder import DataFrameBuilder
from segment_service.durable_log.data_frame_reader import DataFrameReader
from segment_service.durable_log.serializer import deserialize, serialize
from segment_service.maintenance.backup_files import LogFile, read_log
from segment_service.maintenance.log_reading import LogChanged, LogSource, LogSummary, read_attempts_max
from segment_service.maintenance.log_watch import LogWatch

nothing_read: Final = LogAddress(-1, 0)


class LogGap(Exception):
    """The log was truncated beyond the end of its copy, or its end was fenced off: the copy begins again."""


@dataclass(slots=True)
class EffectiveLog:
    """The operations of a copied log, as a restored container replays them."""

    path: Path
    tier2_from: LogAddress
    epoch: int = 0
    """That of the operation that was yielded last, 0 before the first."""

    def operations(self) -> Iterator[tuple[Operation, bool]]:
        """Each operation, and whether it begins a frame as a checkpoint."""
        reader = DataFrameReader()
        for entry in read_log(self.path):
            for record in reader.feed(entry):
                self.epoch = reader.epoch
                operation = deserialize(record.data)
                if isinstance(operation, Checkpoint) and record.address > self.tier2_from:
                    yield Barrier(sequence_number=operation.sequence_number), False
                else:
                    yield operation, record.begins_frame

    def frames(self) -> Iterator[list[bytes]]:
        """The frames of a fresh log with these operations; the first begins with a checkpoint."""
        builder: DataFrameBuilder[None] = DataFrameBuilder(0)
        epoch = 0
        for operation, begins_frame in self.operations():
            if self.epoch != epoch:
                builder.close()
                yield from _taken(builder)
                epoch = self.epoch
                builder = DataFrameBuilder(epoch)
            record = serialize(operation)
            add = builder.add_checkpoint if begins_frame else builder.add
            add(record.head, record.body, record.length, None)
            yield from _taken(builder)
        builder.close()
        yield from _taken(builder)


def _taken(builder: DataFrameBuilder[None]) -> Iterator[list[bytes]]:
    while builder.full:
        yield [bytes(buffer) for buffer in builder.full.popleft().buffers]


@dataclass(slots=True)
class CopiedLog:
    """The copy of one container's log, which grows at its end."""

    source: LogSource
    container_id: int
    path: Path
    end: LogAddress = nothing_read
    """Address of the last frame that was copied."""
    watch: LogWatch = field(default_factory=LogWatch)
    _last_checksum: int = 0
    _file: LogFile | None = field(default=None, repr=False)

    async def begin(self) -> None:
        """Copy the log from its truncation point to its end, in place of what was copied before. ``DataCorruption`` if
        it is not all there."""
        last = ""
        for _ in range(read_attempts_max):
            self.close()
            self._file, self.end, self.watch = LogFile(self.path), nothing_read, LogWatch()
            try:
                async for entry in self.source.read(self.container_id):
                    self._append(entry)
                return
            except LogChanged as error:
                if error.is_loss and str(error) == last:
                    raise DataCorruption(last) from error
                last = str(error)
        raise Unavailable(f"the log of container {self.container_id} keeps being truncated while it is read: try again")

    async def follow(self) -> None:
        """Copy what came since. ``LogGap`` if the copy and the log do not touch any more."""
        last = ""
        for _ in range(read_attempts_max):
            try:
                await self._follow()
                return
            except LogChanged as error:
                if error.is_loss and str(error) == last:
                    raise DataCorruption(last) from error
                last = str(error)
        raise LogGap(f"the log of container {self.container_id} keeps changing while it is read")

    async def _follow(self) -> None:
        touches = False
        async for entry in self.source.read(self.container_id):
            if entry.address < self.end:
                continue
            if entry.address == self.end:
                touches = crc32c(entry.payload) == self._last_checksum
                continue
            if not touches and self.end != nothing_read:
                break
            touches = True
            self._append(entry)
        if not touches and self.end != nothing_read:
            raise LogGap(f"the log of container {self.container_id} was truncated beyond {self.end}")

    def _append(self, entry: LogEntry) -> None:
        if self._file is None:
            raise LogGap("the copy was not begun")
        self.watch.feed(entry)
        self._file.append(entry)
        self.end, self._last_checksum = entry.address, crc32c(entry.payload)

    def effective(self, tier2_from: LogAddress) -> EffectiveLog:
        """Make the copy durable as far as it is, and read it back."""
        if self._file is not None:
            self._file.sync()
        return EffectiveLog(self.path, tier2_from)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class LogContents:
    """Sums up a log for a backup: bounded by its length, which back-pressure bounds."""

    summary: LogSummary = field(default_factory=LogSummary)
    merges: dict[int, Merge] = field(default_factory=dict)
    """By source."""
    deleted: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, log: EffectiveLog) -> LogContents:
        contents = cls()
        for operation, _ in log.operations():
            contents.summary.take(operation)
            if isinstance(operation, Merge):
                contents.merges[operation.source_id] = operation
            elif isinstance(operation, Delete):
                contents.deleted.add(operation.segment_id)
        contents.summary.epoch = log.epoch
        return contents
