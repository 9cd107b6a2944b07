"""Writes and reads the streams of one test with Spark, and looks at them without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.service import ServiceGateway
from pravega_streams.controller.address import ControllerAddress

wait_s = 60


class Streams:
    """Events are texts here; ``scope`` belongs to the test; ``ca_file`` is for a cluster with TLS."""

    def __init__(self, spark: SparkSession, controller: str, scope: str, folder: Path, *, ca_file: str = "") -> None:
        self.spark = spark
        self.controller = controller
        self.scope = scope
        self.folder = folder
        self.gateway = ServiceGateway(ControllerAddress.of(controller, ca_file=ca_file))
        self._trust = {"ca_file": ca_file} if ca_file else {}
        self._queries: list[StreamingQuery] = []

    def keep(self, query: StreamingQuery) -> StreamingQuery:
        """A query of the test's own, to be stopped at its end."""
        self._queries.append(query)
        return query

    def close(self) -> None:
        for query in self._queries:
            query.stop()
        self.gateway.close()

    def options(self, stream: str, **more: Any) -> dict[str, str]:
        given = {"controller": self.controller, "scope": self.scope, "stream": stream, **self._trust, **more}
        return {name: str(value) for name, value in given.items()}

    def create(self, stream: str, segments: int = 1) -> None:
        self.gateway.create_scope(self.scope)
        self.gateway.create_stream(self.scope, stream, StreamConfiguration(ScalingPolicy.fixed(segments)))

    def rows(self, first: int, last: int, keys: int = 10) -> DataFrame:
        """Events ``000012`` with keys ``k2``."""
        return self.spark.range(first, last).selectExpr(
            "format_string('%06d', id) as event", f"concat('k', id % {keys}) as routing_key"
        )

    def write(self, rows: DataFrame, stream: str, **more: Any) -> None:
        rows.write.format("pravega").mode("append").options(**self.options(stream, **more)).save()

    def fill(self, stream: str, first: int, last: int, **more: Any) -> None:
        self.write(self.rows(first, last), stream, **more)

    def read(self, stream: str, **more: Any) -> DataFrame:
        return self.spark.read.format("pravega").options(**self.options(stream, **more)).load()

    def numbers(self, stream: str, **more: Any) -> list[int]:
        """All events of a batch read, sorted."""
        return sorted(int(bytes(row.event)) for row in self.read(stream, **more).select("event").collect())

    def stream(self, stream: str, **more: Any) -> DataStreamReader:
        given = self.options(stream, **{"start_stream_cut": "earliest", **more})
        return self.spark.readStream.format("pravega").options(**given)

    def tail(self, stream: str) -> str:
        return StreamCut(self.scope, stream, self.gateway.tail_cut(self.scope, stream)).as_text()

    def start(
        self, rows: DataFrame, stream: str, checkpoint: str, trigger: dict[str, Any], **more: Any
    ) -> StreamingQuery:
        """A query into a stream."""
        writer = rows.writeStream.format("pravega").options(**self.options(stream, **more))
        return self.keep(writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(**trigger).start())

    def run(self, rows: DataFrame, stream: str, checkpoint: str = "checkpoint", **more: Any) -> StreamingQuery:
        """A query over everything available; raises what the query raised."""
        query = self.start(rows, stream, checkpoint, {"availableNow": True}, **more)
        assert query.awaitTermination(wait_s), "the query did not end in time"
        return query

    def collect(self, rows: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        """A query into memory table ``name``."""
        writer = rows.writeStream.format("memory").queryName(name).outputMode("append")
        return self.keep(writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start())

    def collected(self, name: str, column: str = "event") -> list[Any]:
        return [row[0] for row in self.spark.table(name).select(column).collect()]


def text(events: Sequence[Any]) -> list[str]:
    return [bytes(event).decode() if not isinstance(event, str) else event for event in events]
