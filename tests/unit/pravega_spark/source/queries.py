"""Runs the source of a streaming read as Spark does, with a checkpoint in memory."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary()), ("segment_id", pa.int64())])


def reader(streams: FakeStreams, stream: str = "t", **given: str) -> StreamReader:
    options = {"controller": streams.controller, "scope": "s", "stream": stream, **given}
    options.setdefault("start_stream_cut", "earliest")
    options.setdefault("packed_bytes", "0")  # tests look at the rows of each segment
    return StreamReader(ReadOptions.parse(options, Use.STREAM_READ), SCHEMA, standing_clock)


def standing_clock() -> float:
    """Looks cost no time, so a source is never too idle to look again."""
    return 0.0


class Query:
    """A query as Spark runs it, with a checkpoint that keeps JSON text."""

    def __init__(self, source: StreamReader, limit: ReadLimit | None = None) -> None:
        self.source = source
        self.limit = limit
        self.log: list[str] = []

    def step(self) -> list[list[bytes]] | None:
        """One trigger: the rows of each partition, or None when there is nothing new, but for the first one."""
        start = json.loads(self.log[-1]) if self.log else self.source.initialOffset()
        end = self.source.latestOffset(start, self.limit or self.source.getDefaultReadLimit())
        if self.log and json.dumps(end) == json.dumps(start):
            return None
        self.log.append(json.dumps(end))
        return self.rows(start, end)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[bytes]]:
        partitions = self.source.partitions(start, json.loads(json.dumps(end)))
        return [
            [row for batch in self.source.read(partition) for row in batch.column(0).to_pylist()]
            for partition in partitions
        ]

    def restart(self, source: StreamReader) -> None:
        self.source = source

    def all(self) -> list[bytes]:
        got = []
        while (step := self.step()) is not None:
            got += [event for partition in step for event in partition]
        return got


def steps_of(query: Query) -> list[list[bytes]]:
    """The rows of every trigger until there is nothing new."""
    steps = []
    while (step := query.step()) is not None:
        steps.append([event for partition in step for event in partition])
    return steps


def numbered(first: int, last: int) -> list[bytes]:
    return [f"event-{index:04}".encode() for index in range(first, last)]
