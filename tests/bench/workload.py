"""Generates the events of all benchmarks: unique, of one size, a thousand keys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

keys: Final = 1_000
partitions: Final = 4
bytes_per_run: Final = {100: 400_000_000, 1_000: 1_000_000_000, 10_000: 1_000_000_000}


def events_per_run(size_bytes: int, scale: float) -> int:
    return max(1_000, int(bytes_per_run.get(size_bytes, 400_000_000) * scale / size_bytes))


def generated(spark: SparkSession, events: int, size_bytes: int) -> DataFrame:
    """``routing_key`` string, ``event`` binary: sixteen hexadecimal digits of the row's number, then filling."""
    unique = F.lpad(F.hex("id"), 16, "0")
    event = F.concat(unique, F.lit("x" * (size_bytes - 16))).cast("binary")
    rows = spark.range(0, events, 1, partitions)
    return rows.select((F.col("id") % keys).cast("string").alias("routing_key"), event.alias("event"))


def as_files(spark: SparkSession, folder: Path, events: int, size_bytes: int) -> DataFrame:
    """The same events as a streaming source of Parquet files, written once."""
    path = folder / f"events-{size_bytes}-{events}"
    if not (path / "_SUCCESS").exists():
        generated(spark, events, size_bytes).write.mode("overwrite").parquet(str(path))
    return spark.readStream.schema("routing_key string, event binary").parquet(str(path))
