"""Writes the rows of one task to all their segments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from pravega_common.errors import SegmentError, SegmentNotFound, SegmentSealed
from pravega_common.model.segments import SegmentRange
from pravega_spark.gateway.contract import SegmentWriter, StreamGateway
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import blocks_by_segment, event_header_bytes
from pravega_spark.sink.routing import KeyPositions, RowRouter
from pravega_streams.event.block_writer import Piece


@dataclass(slots=True)
class Tally:
    """The count of a task's rows; bytes are counted with headers, as they are in the stream."""

    events: int = 0
    size_bytes: int = 0

    def add(self, lengths: Int64s) -> None:
        self.events += len(lengths)
        self.size_bytes += int(lengths.sum()) + len(lengths) * event_header_bytes


class SegmentWriters:
    """The writers of one task. Each is opened with the first block of its segment."""

    def __init__(self, gateway: StreamGateway, router: RowRouter, name_of: Callable[[SegmentRange], str]) -> None:
        """``name_of`` gives the qualified name of the segment to write to."""
        self.router = router
        self._gateway = gateway
        self._names = [name_of(segment) for segment in router.segments]
        self._writers: dict[str, SegmentWriter] = {}

    def write(self, events: pa.Array, lengths: Int64s, positions: KeyPositions | None) -> None:
        """``positions`` may be None for a single segment. They stay with the blocks, to route them again.

        When a segment is sealed or gone, the first such error is raised after all blocks were handed over: each is then
        on its way or among what its writer calls ``unacknowledged``.
        """
        indexes = None if positions is None or len(self._names) == 1 else self.router.indexes(positions)
        failure: SegmentError | None = None
        for block in blocks_by_segment(events, lengths, indexes, self._gathered_bytes):
            tag = None if positions is None else positions[block.rows]
            try:
                self.writer(self._names[block.segment_index]).write(block.data, block.event_count, tag)
            except (SegmentSealed, SegmentNotFound) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _gathered_bytes(self, segment_index: int) -> int:
        writer = self._writers.get(self._names[segment_index])
        return 0 if writer is None else writer.gathered_bytes

    def writer(self, name: str) -> SegmentWriter:
        writer = self._writers.get(name)
        if writer is None:
            writer = self._gateway.open_writer(name)
            self._writers[name] = writer
        return writer

    def reroute(self, router: RowRouter, name_of: Callable[[SegmentRange], str]) -> list[Piece]:
        """Go on with other segments; returns what those that are gone did not take, in order per segment.

        That is certain when all their answers are there: one that took its rows just before a merge sealed it has them.
        """
        self.router = router
        self._names = [name_of(segment) for segment in router.segments]
        gone = [self._writers.pop(name) for name in list(self._writers) if name not in self._names]
        try:
            for writer in gone:
                with suppress(SegmentSealed, SegmentNotFound):  # It says so again when it is waited for.
                    writer.start_flush()
            for writer in gone:
                with suppress(SegmentSealed, SegmentNotFound):
                    writer.flush()
            return [piece for writer in gone for piece in writer.unacknowledged()]
        finally:
            # Nobody else knows them any more, and what they hold counts in a budget of all tasks of the process.
            for writer in gone:
                writer.close()

    def start_flush(self) -> None:
        """Send what has gathered, without waiting for answers."""
        for writer in self._writers.values():
            writer.start_flush()

    def flush(self) -> None:
        """Return when all blocks are durable. All segments are sent to before the first is waited for."""
        self.start_flush()
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
