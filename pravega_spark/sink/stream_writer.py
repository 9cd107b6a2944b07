"""Writes the micro-batches of a query from the Arrow batches that Spark 4.1 and later hand over."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.record_columns import WrittenColumns
from pravega_spark.sink.streaming import StreamingSink
from pravega_spark.spark_errors import in_sentences
from pravega_spark.worker_socket import SentToTask


@in_sentences
class StreamWriter(SentToTask, DataSourceStreamArrowWriter):
    """The writer of a query."""

    def __init__(self, options: WriteOptions, columns: WrittenColumns, *, overwrite: bool) -> None:
        """Raises as ``StreamingSink``."""
        self._sink = StreamingSink(options, columns, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(messages)
