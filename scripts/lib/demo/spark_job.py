"""Writes files into the stream and counts the stream by key, until both are through: the demo's Spark driver.

It runs as a process of its own, which is killed in the middle and started again from its checkpoints, and reports by
replacing a small JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from pravega_spark.spark_python import spark_python

SCOPE, STREAM = "demo", "lines"
SEGMENTS = 4
INPUT_SCHEMA = "file string, line long, text string"
poll_s = 0.1


def session() -> SparkSession:
    # By default Spark takes python3 of the path, not the interpreter that runs this.
    os.environ["PYSPARK_PYTHON"] = spark_python()
    return (
        SparkSession.builder.master("local[2]")
        .appName("pravega-spark demo")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1500m")
        .getOrCreate()
    )


def start_writing(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Starts the query files → stream, exactly once; the routing key keeps each file's lines in order."""
    lines = spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 2).json(str(args.folder / "input"))
    return (
        lines.select(F.to_json(F.struct("file", "line", "text")).alias("event"), F.col("file").alias("routing_key"))
        .writeStream.format("pravega")
        .queryName("files into the stream")
        .option("controller", args.controller)
        .option("scope", SCOPE)
        .option("stream", STREAM)
        .option("default_num_segments", SEGMENTS)
        .option("checkpointLocation", str(args.folder / "checkpoint-write"))
        .trigger(availableNow=True)
        .start()
    )


def start_counting(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Starts the query stream → number of lines by file, kept as one JSON file."""
    events = (
        spark.readStream.format("pravega")
        .option("controller", args.controller)
        .option("scope", SCOPE)
        .option("stream", STREAM)
        .option("start_stream_cut", "earliest")
        # Both queries start at the same time: the first of them makes the stream.
        .option("allow_create_scope", "true")
        .option("allow_create_stream", "true")
        .option("default_num_segments", SEGMENTS)
        .load()
    )
    counts = (
        events.select(F.get_json_object(F.col("event").cast("string"), "$.file").alias("file")).groupBy("file").count()
    )

    def keep(frame: DataFrame, batch_id: int) -> None:
        rows = {row["file"]: row["count"] for row in frame.collect()}
        replace(args.folder / "counts.json", {"batch": batch_id, "counts": rows})

    return (
        counts.writeStream.outputMode("complete")
        .queryName("counting by file")
        .foreachBatch(keep)
        .option("checkpointLocation", str(args.folder / "checkpoint-count"))
        .trigger(processingTime="1 second")
        .start()
    )


def replace(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def rows_of(query: StreamingQuery) -> tuple[int, float]:
    """Returns rows and seconds of all batches of this run so far."""
    progress = query.recentProgress
    return sum(item.numInputRows for item in progress), sum(item.batchDuration for item in progress) / 1000


def counted_so_far(folder: Path) -> int:
    try:
        return sum(json.loads((folder / "counts.json").read_text())["counts"].values())
    except FileNotFoundError:
        return 0


def follow(writing: StreamingQuery, counting: StreamingQuery, args: argparse.Namespace) -> None:
    """Reports until everything is written and everything written was counted."""
    while True:
        written, seconds = rows_of(writing)
        total = counted_so_far(args.folder)
        status = {
            "written_this_run": written,
            "batch_seconds_this_run": seconds,
            "in_batch": writing.isActive and bool(writing.status["isTriggerActive"]),
            "writing_done": not writing.isActive,
            "counted": total,
        }
        replace(args.folder / "status.json", status)
        for query in (writing, counting):
            if query.exception() is not None:
                raise SystemExit(f"query '{query.name}' failed: {query.exception()}")
        if not writing.isActive and total >= args.lines:
            return
        time.sleep(poll_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--controller", required=True)
    parser.add_argument("--lines", type=int, required=True)
    args = parser.parse_args()
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    writing = start_writing(spark, args)
    counting = start_counting(spark, args)
    follow(writing, counting, args)
    counting.stop()
    spark.stop()


if __name__ == "__main__":
    main()
