"""Writes rows into streams at least once, without transactions; also without Spark, for pipes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from pravega_common.errors import SegmentError, SegmentNotFound, SegmentSealed, StreamSealed, Unavailable
from pravega_common.model.segments import SegmentRange
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.provisioning import Provision, begun
from pravega_spark.options.given import StreamName
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.rows.framing import event_lengths, events_of, index_events
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.routing import RowRouter
from pravega_spark.sink.segment_writers import SegmentWriters, Tally
from pravega_streams.event.block_writer import Piece

DIRECT_ROWS_DURABLE: Final = register("spark.direct.rows_durable")

scale_time_max_s: Final = 60.0
"""How long a writer whose segment was sealed waits for the stream's new segments."""
scale_poll_s: Final = 0.05


class DirectWriter:
    """A writer of rows to one stream; it returns when every one of them is durable.

    Where a segment is sealed by scaling, what it did not take goes to its successors, in order.
    """

    def __init__(
        self,
        gateway: StreamGateway,
        scope: str,
        stream: str,
        columns: SinkColumns,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gateway = gateway
        self._scope = scope
        self._stream = stream
        self._columns = columns
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._writers: SegmentWriters | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Tally:
        """The count of the rows, which can be read already. Raises ``InvalidArgument`` for null or too large events,
        ``StreamSealed``, ``Unavailable``."""
        tally = Tally()
        try:
            for batch in batches:
                if batch.num_rows:
                    lengths = event_lengths(self._columns.events_of(batch))
                    self.add(batch, lengths)
                    tally.add(lengths)
            self.flush()
            failpoint(DIRECT_ROWS_DURABLE, self._scope)
        finally:
            self.close()
        return tally

    def add(self, rows: pa.RecordBatch, lengths: Int64s) -> None:
        """Some rows, with the lengths of their events; they are durable after ``flush``."""
        events = self._columns.events_of(rows)
        writers = self.open()
        positions = writers.router.key_positions(self._columns.keys_of(rows), lengths)
        try:
            writers.write(events, lengths, positions)
        except (SegmentSealed, SegmentNotFound) as error:
            self._follow_scale(writers, error)

    def open(self) -> SegmentWriters:
        """Looks up the segments of the stream, for the first rows. ``StreamNotFound``, ``StreamSealed``."""
        if self._writers is None:
            router = RowRouter(self._current(), random.getrandbits(16))
            self._writers = SegmentWriters(self._gateway, router, _name)
        return self._writers

    def flush(self) -> None:
        while self._writers is not None:
            try:
                self._writers.flush()
                return
            except (SegmentSealed, SegmentNotFound) as error:
                self._follow_scale(self._writers, error)

    def close(self) -> None:
        if self._writers is not None:
            self._writers.close()

    def _follow_scale(self, writers: SegmentWriters, error: SegmentError) -> None:
        """Give what sealed segments did not take to the segments that came after them."""
        failure: SegmentError | None = error
        pending: list[Piece] = []
        while failure is not None:
            router = RowRouter(self._segments_after(failure), random.getrandbits(16))
            # What was sealed again meanwhile comes before what is still waiting: it was written first.
            pending = writers.reroute(router, _name) + pending
            failure = None
            while pending and failure is None:
                piece = pending.pop(0)
                events = events_of(piece.data, index_events(piece.data))
                try:
                    writers.write(events, event_lengths(events), piece.tag)
                except (SegmentSealed, SegmentNotFound) as again:
                    failure = again

    def _segments_after(self, error: SegmentError) -> list[SegmentRange]:
        """The open segments, once the one that took no bytes is not among them."""
        deadline_s = self._monotonic_s() + scale_time_max_s
        while True:
            segments = self._current()
            if all(_name(segment) != error.segment for segment in segments):
                return segments
            if self._monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{error.segment} is sealed, but its stream names it as open for {scale_time_max_s:.0f} s"
                ) from error
            self._sleep(scale_poll_s)

    def _current(self) -> list[SegmentRange]:
        segments = self._gateway.current_segments(self._scope, self._stream)
        if not segments:
            raise StreamSealed(f"stream {self._scope}/{self._stream} is sealed and takes no more events")
        return segments


def _name(segment: SegmentRange) -> str:
    return segment.name


class MultiStreamWriter:
    """A writer of one task's rows, each to its stream; it returns when every one of them is durable."""

    def __init__(
        self,
        gateway: StreamGateway,
        destinations: Destinations,
        columns: SinkColumns,
        provision: Provision | None = None,
    ) -> None:
        """``provision`` is called before the first row of a stream."""
        self._gateway = gateway
        self._destinations = destinations
        self._columns = columns
        self._provision = provision
        self._writers: dict[StreamName, DirectWriter] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> Tally:
        """Raises what ``DirectWriter.write`` does, and ``InvalidArgument`` for bad destinations."""
        tally = Tally()
        try:
            for batch in batches:
                if batch.num_rows:
                    lengths = event_lengths(self._columns.events_of(batch))
                    for rows in self._destinations.split(batch, self._columns, lengths):
                        self._writer(rows.stream).add(rows.rows, rows.lengths)
                    tally.add(lengths)
            for writer in self._writers.values():
                writer.flush()
            failpoint(DIRECT_ROWS_DURABLE, self._destinations.scope)
        finally:
            for writer in self._writers.values():
                writer.close()
        return tally

    @property
    def streams(self) -> tuple[StreamName, ...]:
        """The streams that got rows."""
        return tuple(self._writers)

    def _writer(self, name: StreamName) -> DirectWriter:
        writer = self._writers.get(name)
        if writer is None:
            writer = DirectWriter(self._gateway, *name, self._columns)
            begun(name, self._provision, writer.open)
            self._writers[name] = writer
        return writer
