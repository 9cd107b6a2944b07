"""Copies streams in a Spark driver on demand: ``python -m tests.drills.sink.driver_main SOCKET {configuration}``.

It connects to the socket, says hello and then answers one list of ``Copy`` after another: all are run at the same time
to the end of what is available; the answer is what each query raised, None if nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing.connection import Client, Connection
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pravega_common.runtime.failpoints import failpoint
from tests.drills.sink.copy import Copy
from tests.drills.sink.hooks import BETWEEN_WRITES, armed, pass_through
from tests.drills.sink.records import COLUMNS


def rows_of(spark: SparkSession, copy: Copy) -> DataFrame:
    rows = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(copy.source)
    if copy.where:
        rows = rows.where(copy.where)
    rows = rows.selectExpr("value as event")
    rows = rows.selectExpr("event", "concat('k', cast(event as int) % 10) as routing_key")
    if copy.repartition:
        rows = rows.repartition(copy.repartition, "routing_key")
    if copy.hooked:
        rows = rows.mapInArrow(pass_through(copy.scope), "event string, routing_key string")
    return rows


def written(rows: DataFrame, copy: Copy) -> DataFrame:
    """The rows in the columns that the sink of a copy takes."""
    if copy.sink.get("format") != "record":
        return rows
    return rows.selectExpr(*COLUMNS, *(["stream"] if "stream" in rows.columns else []))


def start(spark: SparkSession, copy: Copy) -> StreamingQuery:
    rows = rows_of(spark, copy)
    store = {"controller": copy.controller, "scope": copy.scope}

    def write_each(batch: DataFrame, batch_id: int) -> None:
        for number, target in enumerate(copy.targets):
            if number:
                failpoint(BETWEEN_WRITES, copy.scope)
            half = "cast(event as int) % 10 >= 5" if number else "cast(event as int) % 10 < 5"
            part = batch if len(set(copy.targets)) > 1 else batch.where(half)
            options = {**store, "stream": target, **copy.sink}
            if copy.sink.get("exactly_once") != "false":
                options |= {"txn_app_id": f"{copy.name}-{number}", "txn_version": str(batch_id)}
            written(part, copy).write.format("pravega").mode("append").options(**options).save()

    if copy.spread:
        choice = f"if(cast(event as int) div 10 % 2 = 0, '{copy.targets[0]}', '{copy.targets[1]}') as stream"
        writer = written(rows.selectExpr("*", choice), copy).writeStream.format("pravega").options(**store, **copy.sink)
    elif len(copy.targets) > 1:
        writer = rows.writeStream.foreachBatch(write_each)
    else:
        writer = written(rows, copy).writeStream.format("pravega").options(**store, stream=copy.targets[0], **copy.sink)
    return writer.option("checkpointLocation", copy.checkpoint).trigger(availableNow=True).start()


def run(spark: SparkSession, copies: list[Copy]) -> list[str | None]:
    began_s = time.monotonic()
    failures: list[str | None] = []
    queries: list[StreamingQuery] = []
    for copy in copies:
        time.sleep(max(0.0, began_s + copy.start_after_s - time.monotonic()))
        queries.append(start(spark, copy))
    for query in queries:
        try:
            query.awaitTermination()
            failures.append(None)
        except StreamingQueryException as error:
            failures.append(str(error))
    return failures


def serve(calls: Connection, spark: SparkSession) -> None:
    while True:
        try:
            copies = calls.recv()
        except EOFError:
            return
        try:
            calls.send((run(spark, copies), None))
        except Exception as error:  # Told to the drill, which decides.
            calls.send((None, f"{type(error).__name__}: {error}"))


def main() -> None:
    armed()
    builder = SparkSession.builder.appName("drill")
    for name, value in json.loads(sys.argv[2]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    calls: Any = Client(sys.argv[1])
    calls.send(("hello", os.getpid()))
    serve(calls, spark)
    spark.stop()


if __name__ == "__main__":
    main()
