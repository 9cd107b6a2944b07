"""Copies events between a pipe and a stream, for ``event write`` and ``event read``."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from pravega_common.errors import DataCorruption
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import offsets_by_name, scoped_name, segment_name
from pravega_spark.commands.event_formats import Parser, Printer
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import NOT_EVENTS, EventWindow
from pravega_spark.source.data_loss import head_advice, with_advice
from pravega_spark.source.stream_positions import StreamPositions

chunk_bytes: Final = 4 * 1024 * 1024
"""Bytes read from a pipe at once."""
burst_bytes_max: Final = 256 * 1024 * 1024
"""Bytes written before everything is made durable and counted."""
idle_time_s: Final = 0.05
"""A pipe that pauses this long is slow: its events so far are made durable at once."""
poll_time_min_s: Final = 0.05
poll_time_max_s: Final = 0.5
"""``--follow`` looks for new events after this time at most; without any, the delay doubles up to it. A store that can
be watched ends the delay when they come."""


class Pipe:
    """The input of a command, in chunks; knows whether more can be read without waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_at_end = False

    def burst(self) -> Iterator[bytes]:
        """Yields chunks from the first one until the pipe falls idle or ends, or until ``burst_bytes_max``."""
        total = 0
        while total < burst_bytes_max and (total == 0 or self._has_more()):
            chunk = os.read(self._descriptor, chunk_bytes)
            if not chunk:
                self.is_at_end = True
                return
            total += len(chunk)
            yield chunk

    def _has_more(self) -> bool:
        return bool(select.select([self._descriptor], [], [], idle_time_s)[0])


def burst_batches(pipe: Pipe, parser: Parser, gather_bytes: int = chunk_bytes) -> Iterator[pa.RecordBatch]:
    """Parses the events of one burst; a pipe gives 64 KiB at a time, so several chunks are parsed together."""
    gathered: list[bytes] = []
    size = 0
    for chunk in pipe.burst():
        gathered.append(chunk)
        size += len(chunk)
        if size >= gather_bytes:
            yield parser.feed(b"".join(gathered))
            gathered, size = [], 0
    yield parser.feed(b"".join(gathered))
    if pipe.is_at_end:
        yield parser.end()


Writer = Callable[[Iterator[pa.RecordBatch]], object]
"""Writes all events of the batches, and returns when they are durable."""


def write_pipe(descriptor: int, parser: Parser, write: Writer, durable: Callable[[int], None]) -> int:
    """Writes until the pipe ends; calls ``durable`` with the number of durable events after each burst."""
    pipe = Pipe(descriptor)
    while not pipe.is_at_end:
        write(burst_batches(pipe, parser))
        durable(parser.events_seen)
    return parser.events_seen


# ---- out -------------------------------------------------------------------------------------------------------------


@dataclass
class EventPrinter:
    """A printer of a stream's events, in order per routing key. ``events_max``: stop after this number (0: never)."""

    gateway: StreamGateway
    scope: str
    stream: str
    printer: Printer
    output: Callable[[bytes | memoryview], object]
    events_max: int = 0
    events: int = 0
    position: dict[int, int] = field(default_factory=dict)

    def read(self, start: SegmentOffsets, end: SegmentOffsets) -> None:
        """Prints the events between two cuts. Ascending ids never put a segment before its predecessors."""
        with self._advised():
            for span in self._positions().spans(start, end):
                self._print(span.segment_id, span.start, span.end)
                if self._is_done():
                    return

    def follow(self, start: SegmentOffsets, sleep: Callable[[float], None] = time.sleep) -> None:
        """Prints the events from a cut on, until stopped or the stream is sealed and read to its end."""
        with self._advised():
            self._follow(start, sleep)

    def _follow(self, start: SegmentOffsets, sleep: Callable[[float], None]) -> None:
        positions, watch = self._positions(), self.gateway.open_watch()
        self.position, delay_s, is_told = dict(start), poll_time_min_s, False
        while not self._is_done():
            advanced, infos = positions.advanced(self.position)
            self.position = dict(advanced)
            fresh = {item: infos[item].length for item, offset in self.position.items() if infos[item].length > offset}
            for item in sorted(fresh):
                self._print(item, self.position[item], fresh[item])
                self.position[item] = fresh[item]
                if self._is_done():
                    return
            if fresh:
                delay_s, is_told = poll_time_min_s, False
            elif all(info.is_sealed for info in infos.values()):
                return
            elif not is_told and watch.begin(offsets_by_name(self.scope, self.stream, self.position)):
                is_told = watch.wait(poll_time_max_s)
            else:  # Nobody tells of bytes, or somebody did and there were none.
                sleep(delay_s)
                delay_s, is_told = min(delay_s * 2, poll_time_max_s), False

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Says of lost data what this command can do about it."""
        try:
            yield
        except DataCorruption as error:
            advice = head_advice("--from", scoped_name(self.scope, self.stream))
            if (told := with_advice(str(error), advice)) != str(error):
                raise DataCorruption(told) from error
            raise

    def _positions(self) -> StreamPositions:
        return StreamPositions(self.gateway, self.scope, self.stream, fail_on_data_loss=True)

    def _is_done(self) -> bool:
        return 0 < self.events_max <= self.events

    def _print(self, segment_id: int, start: int, end: int) -> None:
        for events, offsets in self._batches(segment_id, start, end):
            left = self.events_max - self.events if self.events_max else len(events)
            count = min(left, len(events))
            self.output(self.printer(events.slice(0, count), offsets[:count], segment_id))
            self.events += count
            if self._is_done():
                return

    def _batches(self, segment_id: int, start: int, end: int) -> Iterator[tuple[pa.Array, Int64s]]:
        name = segment_name(self.scope, self.stream, segment_id)
        source = self.gateway.open_range(name, start, end)
        window = EventWindow(start)
        try:
            while count := source.read_into(window.free()):
                window.filled(count)
                index = window.index()
                if len(index.starts):
                    yield window.events(index), index.starts.astype(np.int64) + window.offset
                window.consume(index)
            if window.unconsumed_bytes:
                raise DataCorruption(f"{name}: offset {end} is not the end of an event; {NOT_EVENTS}")
        finally:
            source.close()
