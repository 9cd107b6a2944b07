"""Makes the readers and writers of ``format("pravega")`` from options and schemas, for ``pyspark_pravega``.

Each is imported where it is made: an older Spark lacks the base classes of some, and Spark makes each in a process of
its own, which need not import the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_spark.options.definitions import Use
from pravega_spark.options.given import missing_option
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import (
    INGEST_TIME_COLUMN,
    RECORD_SOURCE_SCHEMA,
    SOURCE_SCHEMA,
    SinkColumns,
    can_be_json,
    check_source_schema,
    sink_columns,
)
from pravega_spark.rows.event_time import check_event_time
from pravega_spark.rows.record_columns import WrittenColumns, record_columns
from pravega_spark.sink.copied_events import routed_by_segment, warn_of_lost_keys
from pravega_spark.spark_errors import one_sentence
from pravega_spark.spark_version import ADMISSION_CONTROL, ARROW_STREAM_SINK, PUSHED_FILTERS, has, refuse

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter

    from pravega_spark.sink.batch_writer import BatchWriter
    from pravega_spark.source.batch_reader import BatchReader, MetadataReader


@one_sentence
def read_schema(given: Mapping[str, str]) -> str:
    """The schema of a read without one of the user's, as DDL."""
    options = ReadOptions.parse(given, Use.READ)
    if options.metadata is not None:
        from pravega_spark.source.batch_reader import metadata_schema

        return metadata_schema(options.metadata)
    columns = RECORD_SOURCE_SCHEMA if options.has_records else SOURCE_SCHEMA
    return f"{columns}, {INGEST_TIME_COLUMN}" if options.ingest_time else columns


@one_sentence
def batch_reader(given: Mapping[str, str], schema: StructType) -> BatchReader | MetadataReader:
    from pravega_spark.source.batch_reader import BatchReader, MetadataReader

    options = ReadOptions.parse(given, Use.BATCH_READ)
    arrow = _arrow_schema(schema)
    if options.metadata is not None:
        return MetadataReader(options, arrow)
    check_source_schema(arrow, records=options.has_records)
    if options.push_filters == "false":
        return BatchReader(options, arrow)
    if not has(PUSHED_FILTERS):
        raise refuse("option 'push_filters'", PUSHED_FILTERS, "leave it out")
    if options.push_filters == "true":
        # The jar, which makes a source for each filter, asks for ``once``.
        raise ConfigurationError(
            "option 'push_filters' is 'true', which needs the optional jar: without it Spark gives all that is made of "
            "a frame of load() the rows of its last filter; set push_filters=once, and load a frame for each query"
        )
    from pravega_spark.source.filtering_batch_reader import FilteringBatchReader

    return FilteringBatchReader(options, arrow)


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Makes the reader of a query; a refusal is raised at its first call (``RefusedStreamReader``)."""
    try:
        return _stream_reader(given, schema)
    except PravegaError as error:
        from pravega_spark.source.refused_stream_reader import RefusedStreamReader

        return RefusedStreamReader(error)


def _stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    if ReadOptions.parse(given, Use.READ).metadata is not None:
        raise ConfigurationError("option 'metadata' is of batch reads; a streaming read gives events: leave it out")
    arrow = _arrow_schema(schema)
    options = ReadOptions.parse(given, Use.STREAM_READ)
    check_source_schema(arrow, records=options.has_records)
    if has(ADMISSION_CONTROL):
        from pravega_spark.source.stream_reader import StreamReader

        return StreamReader(options, arrow)
    from pravega_spark.source.plain_stream_reader import PlainStreamReader

    return PlainStreamReader(options, arrow)


@one_sentence
def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    from pravega_spark.sink.batch_writer import BatchWriter

    options = WriteOptions.parse(given, Use.BATCH_WRITE)
    return BatchWriter(options, _sink_columns(options, schema), overwrite=overwrite)


@one_sentence
def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    options = WriteOptions.parse(given, Use.STREAM_WRITE)
    columns = _sink_columns(options, schema)
    if has(ARROW_STREAM_SINK):
        from pravega_spark.sink.stream_writer import StreamWriter

        return StreamWriter(options, columns, overwrite=overwrite)
    from pravega_spark.sink.row_stream_writer import RowStreamWriter

    event = schema.fields[columns.event]
    if can_be_json(event.dataType.simpleString()):
        name = event.name
        raise refuse(f"column '{name}' of nested rows", ARROW_STREAM_SINK, f"write to_json({name}) AS {name}")
    return RowStreamWriter(options, columns, _arrow_schema(schema), overwrite=overwrite)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark compares the first record batch with (docs/spark-source-and-sink.md B.4)."""
    zone: dict[str, Any] = {"timezone": "UTC"} if has(ADMISSION_CONTROL) else {"timestamp_utc": True}
    return to_arrow_schema(schema, **zone)


def _sink_columns(options: WriteOptions, schema: StructType) -> WrittenColumns:
    """Option ``stream`` takes precedence over a column of that name: rows that were read from a stream have one."""
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    find = record_columns if options.has_records else sink_columns
    if options.event_time_column is not None:
        check_event_time(fields, options.event_time_column)
    columns = find(fields, with_stream=options.stream is None, aside=options.event_time_column)
    if options.stream is None and columns.stream is None:
        raise missing_option("stream", ", or a column 'stream' that says where each row goes")
    if options.route_by == "segment" and isinstance(columns, SinkColumns):
        columns = routed_by_segment(schema.names, columns)
    warn_of_lost_keys(schema.names, columns, options.destination)
    return columns
