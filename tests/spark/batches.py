"""Collects the batches of a streaming read, over its restarts, as frames that ``chispa`` can compare."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from pravega_common.hashing import position_of_key
from pravega_common.segment_router import SegmentRouter
from tests.spark.streams import Streams


class Batches:
    """A query that can be stopped and started again from its checkpoint; a batch that is repeated counts once."""

    def __init__(self, streams: Streams, rows: DataFrame, checkpoint: str = "batches") -> None:
        self._streams = streams
        self._rows = rows
        self._folder = str(streams.folder / checkpoint)
        self._by_id: dict[int, list[Row]] = {}
        self.query: StreamingQuery

    def start(self, **trigger: Any) -> Batches:
        def take(rows: DataFrame, batch_id: int) -> None:
            self._by_id[batch_id] = rows.collect()

        writer = self._rows.writeStream.foreachBatch(take).option("checkpointLocation", self._folder)
        self.query = self._streams.keep(writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start())
        return self

    def stop(self) -> None:
        self.query.stop()

    def catch_up(self) -> None:
        """Until the stream is read; raises what the query raised."""
        self.query.processAllAvailable()

    @property
    def rows(self) -> list[Row]:
        """In the order in which they were read."""
        return list(itertools.chain.from_iterable(self._by_id[number] for number in sorted(self._by_id)))

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that had any."""
        return [len(self._by_id[number]) for number in sorted(self._by_id) if self._by_id[number]]

    def expect(self, *numbers: Iterable[int]) -> None:
        """Just these events were read, each once."""
        read = frame(self._streams, (bytes(row.event).decode() for row in self.rows))
        assert_same(read, events(self._streams, *numbers))


def assert_same(actual: DataFrame, expected: DataFrame) -> None:
    """The same rows, in whichever order and nullability."""
    assert_df_equality(actual, expected, ignore_nullable=True, ignore_row_order=True)


def frame(streams: Streams, texts: Iterable[str]) -> DataFrame:
    return streams.spark.createDataFrame([(text,) for text in texts], "event string")


def events(streams: Streams, *numbers: Iterable[int]) -> DataFrame:
    """Returns the events that ``streams.rows`` makes of these numbers."""
    return frame(streams, (f"{number:06}" for number in itertools.chain.from_iterable(numbers)))


def read_events(streams: Streams, stream: str, **options: Any) -> DataFrame:
    """A batch read, as text."""
    return streams.read(stream, **options).selectExpr("cast(event as string) as event")


def key_of_each_segment(streams: Streams, stream: str) -> list[str]:
    """Routing keys, one for each open segment, in the order of their ranges."""
    router = SegmentRouter(streams.gateway.current_segments(streams.scope, stream))
    found: dict[int, str] = {}
    for number in itertools.count():
        key = f"key-{number}"
        found.setdefault(router.segment_of(position_of_key(key)).segment_id, key)
        if len(found) == len(router.segments):
            return [found[item.segment_id] for item in router.segments]
    raise AssertionError
