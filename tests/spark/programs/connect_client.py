"""Runs a client of Spark Connect (``python -m tests.spark.programs.connect_client {…}``); prints its results as JSON.

The argument: ``address`` of the server, ``controller``, ``scope``, ``folder`` for checkpoints and files.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_spark import lag
from pravega_spark.functions import from_envelope, to_envelope

events = 1_000


class Client:
    def __init__(self, given: dict[str, str]) -> None:
        self._spark = SparkSession.builder.remote(given["address"]).getOrCreate()
        self._store = {"controller": given["controller"], "scope": given["scope"]}
        self._folder = given["folder"]

    def close(self) -> None:
        self._spark.stop()

    def _rows(self, first: int, last: int) -> DataFrame:
        return self._spark.range(first, last).selectExpr(
            "format_string('%06d', id) as event", "concat('k', id % 10) as routing_key"
        )

    def _write(self, rows: DataFrame, stream: str, **more: str) -> None:
        rows.write.format("pravega").mode("append").options(**self._store, stream=stream, **more).save()

    def _numbers(self, stream: str) -> list[int]:
        rows = self._spark.read.format("pravega").options(**self._store, stream=stream).load()
        return sorted(row[0] for row in rows.selectExpr("cast(cast(event as string) as int)").collect())

    def _streamed(self, **more: str) -> DataFrame:
        reader = self._spark.readStream.format("pravega").options(**self._store, stream="from", **more)
        return reader.option("start_stream_cut", "earliest").load()

    def _run(self, rows: DataFrame, name: str, sink: str, **options: str) -> dict[str, Any]:
        """Over all there is; the rows of the batches, and what is left behind the last one."""
        writer = rows.writeStream.format(sink).options(**options).queryName(name)
        writer = writer.option("checkpointLocation", f"{self._folder}/{name}-checkpoint")
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(120):
            raise RuntimeError(f"query {name} did not end")
        error = query.exception()
        if error is not None:
            raise error
        left = lag(query.lastProgress)
        sizes = [sum(source.numInputRows for source in progress.sources) for progress in query.recentProgress]
        return {"sizes": [size for size in sizes if size], "left": None if left is None else [left.bytes, left.events]}

    def batch(self) -> list[int]:
        """Written under one name twice, which is once."""
        for _ in range(2):
            self._write(self._rows(0, events), "from", job_id="first", default_num_segments="3")
        return self._numbers("from")

    def threads(self) -> list[int]:
        """Written by threads that do nothing else first: only a JVM of the driver's own wants that (docs/faq.md)."""
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda first: self._write(self._rows(first, first + 10), "threads"), range(0, 40, 10)))
        return self._numbers("threads")

    def streaming_read(self) -> dict[str, Any]:
        files = f"{self._folder}/files"
        rows = self._streamed(max_events_per_trigger="400").selectExpr("cast(event as string) as event")
        told = self._run(rows, "reading", "parquet", path=files)
        read = sorted(int(row.event) for row in self._spark.read.parquet(files).collect())
        return {**told, "numbers": read}

    def streaming_write(self) -> list[dict[str, Any]]:
        """Three runs from one checkpoint: more is written before the second, nothing before the third."""
        told = []
        for run in range(3):
            if run == 1:
                self._write(self._rows(events, events + 100), "from")
            rows = self._streamed().selectExpr("event", "concat('k', segment_id) as routing_key")
            told.append(self._run(rows, "copying", "pravega", **self._store, stream="to"))
            told[-1]["numbers"] = self._numbers("to")
        return told

    def envelope(self) -> list[list[str]]:
        pairs = self._spark.createDataFrame([("a", "x"), ("b", "y")], "key string, value string")
        self._write(pairs.select(to_envelope("key", "value").alias("event"), F.col("key").alias("routing_key")), "env")
        rows = self._spark.read.format("pravega").options(**self._store, stream="env").load()
        opened = rows.select(from_envelope("event").alias("e")).selectExpr(
            "cast(e.key as string) as key", "cast(e.value as string) as value"
        )
        return sorted([row.key, row.value] for row in opened.collect())

    def refusal(self) -> str:
        try:
            self._write(self._rows(0, 1), "from", steam="x")
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""


def main() -> None:
    client = Client(json.loads(sys.argv[1]))
    names = ("batch", "threads", "streaming_read", "streaming_write", "envelope", "refusal")
    print(json.dumps({name: getattr(client, name)() for name in names}))
    client.close()


if __name__ == "__main__":
    main()
