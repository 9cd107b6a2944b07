"""Writes the micro-batches of a query on Spark 4.0, which hands a streaming sink rows and not Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from pravega_common.errors import InvalidArgument
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.record_columns import WrittenColumns
from pravega_spark.sink.streaming import StreamingSink
from pravega_spark.spark_errors import in_sentences
from pravega_spark.worker_socket import SentToTask

rows_per_batch: Final = 4_096
bytes_per_batch: Final = 16 * 1024 * 1024
"""About the bytes at which a batch takes no further row, as 4,096 of the largest events have 32 GiB."""


@in_sentences
class RowStreamWriter(SentToTask, DataSourceStreamWriter):
    """The writer of a query; ``schema`` is that of the rows."""

    def __init__(self, options: WriteOptions, columns: WrittenColumns, schema: pa.Schema, *, overwrite: bool) -> None:
        """Raises as ``StreamingSink``."""
        self._sink = StreamingSink(options, columns, overwrite=overwrite)
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._sink.write(batches_of(iterator, self._schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(messages)


def batches_of(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in record batches of ``rows_per_batch`` at most, and of about ``bytes_per_batch``."""
    while chunk := list(_chunk(rows)):
        columns = zip(*chunk, strict=True)
        arrays = [pa.array(_values(values, field), field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunk(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows of one batch; those behind them are not asked for."""
    size_bytes = 0
    for row in islice(rows, rows_per_batch):
        yield row
        size_bytes += _about_bytes(row)
        if size_bytes >= bytes_per_batch:
            return


def _about_bytes(value: Any) -> int:
    """The length of texts and bytes, also within headers; what else a row has is small."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    return sum(map(_about_bytes, value)) if isinstance(value, tuple | list) else 0


def _values(values: Iterable[Any], field: pa.Field) -> Iterable[Any]:
    """Rows have timestamps in the worker's own zone, without naming it; Arrow would take them as UTC."""
    if not pa.types.is_timestamp(field.type) or field.type.tz is None:
        return values
    return [None if value is None else _in_utc(value) for value in values]


def _in_utc(moment: datetime) -> datetime:
    """``InvalidArgument`` for an hour that comes twice when clocks are set back: Spark does not say which it is."""
    first, second = (moment.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if first != second:
        raise InvalidArgument(
            f"Spark 4.0 gives a streaming sink the time {moment} without its zone, and the clocks of the workers show "
            "it twice; run the executors in UTC (spark.executorEnv.TZ=UTC), or use Spark 4.1 or later"
        )
    return first
