"""Reads streams between two positions as a batch, or facts about streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pravega_common.errors import InvalidArgument, NotFound, SegmentNotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.limits import Limit
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.native_plan import may_be_native
from pravega_spark.source.partition_reader import RowsPartition, SpanPartition, read_spans
from pravega_spark.source.range_planner import Span, packed_bytes_min, packs_of_batch, split
from pravega_spark.source.read_edges import first_cut, given_start, last_cut
from pravega_spark.source.read_streams import has_gone, some_streams_of
from pravega_spark.source.span_filters import NO_FILTERS
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.source.told_cuts import with_cuts
from pravega_spark.spark_errors import in_sentences
from pravega_spark.worker_socket import SentToTask

batch_partition_bytes: Final = 128 * 1024 * 1024
"""The largest partition of a batch read unless options say otherwise, about: that of Spark's own files."""

METADATA_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "StreamInfo": ("head_stream_cut", "tail_stream_cut"),
    "Streams": ("scope_name", "stream_name"),
}
"""The columns of the rows of each value of option ``metadata``, all of them strings."""


def metadata_schema(kind: str) -> str:
    """Spark's DDL of the rows of a value of option ``metadata``."""
    return ", ".join(f"{name} string" for name in METADATA_COLUMNS[kind])


@in_sentences
class BatchReader(SentToTask, DataSourceReader):
    """The reader of a batch, planned on the driver and pickled to executors.

    Positions are chosen when Spark asks for the partitions.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self.filters = NO_FILTERS

    def partitions(self) -> list[InputPartition]:
        gateway = provisioned_gateway(self._options)
        fails = self._options.fail_on_data_loss
        positions = {
            name: StreamPositions(gateway, *name, fail_on_data_loss=fails)
            for name in map(split_scoped_name, some_streams_of(self._options, gateway))
            if self.filters.takes_stream(*name)
        }
        start, limit = given_start(self._options), self._options.end_stream_cut
        limit = None if limit is None else with_cuts(limit)
        ends: dict[str, SegmentOffsets] = {}
        spans: list[Span] = []
        for name, one in positions.items():
            try:
                end = self._end(limit, one)
                spans += self._spans(start, one, end)
            except (NotFound, SegmentNotFound):
                if not has_gone(self._options, gateway, *name):
                    raise
                continue
            ends[scoped_name(*name)] = end

        def locate(span: Span, offset: int) -> int:
            return positions[span.scope, span.stream].events.locate(span.segment_id, offset, span.end)

        most_bytes = self._options.max_partition_bytes or batch_partition_bytes
        pieces = split(spans, self._options.min_partitions, most_bytes, locate)
        packs = packs_of_batch(pieces, self._options.min_partitions, most_bytes, packed_bytes_min)
        first, *others = packs or [()]
        is_native = may_be_native(self._options, self._schema, gateway)
        return [
            SpanPartition.planned(gateway, *first, ends=ends, is_native=is_native),
            *(SpanPartition.planned(gateway, *some, is_native=is_native) for some in others),
        ]

    def _spans(self, start: Limit | None, one: StreamPositions, end: SegmentOffsets) -> list[Span]:
        return [
            taken
            for span in one.spans(first_cut(self._options, start, one, is_streaming=False), end)
            if (taken := self.filters.narrowed(span, one.events.boundary_before, one.events.locate)) is not None
        ]

    def _end(self, limit: Limit | None, one: StreamPositions) -> SegmentOffsets:
        if self._options.end_time is not None:
            return one.cut_at_time(self._options.end_time, as_end=True)
        return one.tail() if limit is None else last_cut(self._options, limit, one)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SpanPartition):  # Without partitions Spark makes one up that has no span.
            yield from read_spans(
                partition,
                self._schema,
                self._options.controller,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )


@in_sentences
class MetadataReader(DataSourceReader):
    """The rows of option ``metadata``; they are made on the driver."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        """``InvalidArgument`` for a schema with other columns."""
        self._options = options
        self._schema = schema
        kind = str(options.metadata)
        self._names = METADATA_COLUMNS[kind]
        for field in schema:
            if field.name not in self._names or field.type != pa.string():
                raise InvalidArgument(
                    f"metadata={kind} has no column '{field.name}' of type {field.type}; leave the schema out, or name "
                    f"some of: {metadata_schema(kind)}"
                )

    def partitions(self) -> list[InputPartition]:
        return [RowsPartition(self._rows())]

    def _rows(self) -> list[tuple[str, str]]:
        scope = self._options.scope
        if self._options.metadata == "Streams":
            pattern = self._options.stream_pattern
            names = worker_gateway(self._options.controller).list_streams(scope)
            return [(scope, name) for name in names if pattern is None or pattern.fullmatch(name)]
        gateway = provisioned_gateway(self._options)
        rows: list[tuple[str, str]] = []
        for scope, stream in map(split_scoped_name, some_streams_of(self._options, gateway)):
            try:
                cuts = gateway.head_cut(scope, stream), gateway.tail_cut(scope, stream)
            except (NotFound, SegmentNotFound):
                if not has_gone(self._options, gateway, scope, stream):
                    raise
                continue
            head, tail = (StreamCut(scope, stream, cut).as_text() for cut in cuts)
            rows.append((head, tail))
        return rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RowsPartition):
            indices = [self._names.index(name) for name in self._schema.names]
            columns = [pa.array([row[index] for row in partition.rows], pa.string()) for index in indices]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
