"""Checks that the rows of a frame can be made one by one, as jobs need that work through their source in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_row_by_row(spark: SparkSession, streamed: DataFrame) -> None:
    """Raises Spark's own error for expressions that a batch may have and a stream may not: over several rows."""
    frame: Any = streamed
    context: Any = spark.sparkContext
    packages = context._jvm.org.apache.spark.sql
    checker = packages.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), packages.streaming.OutputMode.Append())
