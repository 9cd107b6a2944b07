"""Reads one span of a segment into Arrow record batches, on executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pravega_common.errors import DataCorruption, SegmentNotFound, SegmentTruncated
from pravega_spark.gateway.connect import renew
from pravega_spark.gateway.contract import RangeSource, StreamGateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.rows.columns import RowBuilder
from pravega_spark.rows.framing import EventLayout, EventWindow, event_header_bytes, window_bytes_default
from pravega_spark.source.data_loss import data_loss
from pravega_spark.source.ingest_times import IngestTimes
from pravega_spark.source.native_plan import NO_PLAN, left_to_python, native_plan
from pravega_spark.source.offsets import OffsetsByStream
from pravega_spark.source.range_planner import Span
from pravega_streams.controller.address import Controller
from pravega_streams.credentials import Credentials

_log = logging.getLogger(__name__)


class SpanPartition(InputPartition):
    """Spans to read one after the other. Pickled to the executor."""

    def __init__(self, *spans: Span, ends: OffsetsByStream | None = None, stores: Sequence[str] = ()) -> None:
        """``ends``: where the whole read ends, noted in one partition of a batch read (``read_cut.py``).

        ``stores``: who served each span when the read was planned, as far as that is known. A task that begins there
        does not ask the controller, and so does not import gRPC.
        """
        self.spans = spans
        self.ends = ends
        self.stores = tuple(stores)
        self.native_plan = NO_PLAN
        """The plan for the optional jar, where that may read this partition; the jar writes into it what it leaves."""
        self.credentials: Credentials | None = None
        """Those of the moment at which the partition is pickled: the reader is pickled once, and a query may run for
        longer than they are good for."""

    @classmethod
    def planned(
        cls, gateway: StreamGateway, *spans: Span, ends: OffsetsByStream | None = None, is_native: bool = False
    ) -> SpanPartition:
        """A partition with what the gateway knows of its stores; ``is_native``: the optional jar may read it."""
        made = cls(*spans, ends=ends, stores=[gateway.known_store(span.segment) for span in spans])
        made.credentials = gateway.credentials
        if is_native:
            made.native_plan = native_plan(made.spans, made.stores)
        return made

    def __repr__(self) -> str:
        return f"SpanPartition{self.spans}"


class RowsPartition(InputPartition):
    """Rows that the driver knows already."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self.rows = rows


def read_spans(
    partition: SpanPartition, schema: pa.Schema, controller: Controller, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The events of all spans of a partition; raises as ``read_span``."""
    gateway = worker_gateway(controller)
    renew(partition.credentials)
    for span, store in zip(partition.spans, partition.stores, strict=False):
        if store:
            gateway.expect_store(span.segment, store)
    for span in left_to_python(partition.spans, partition.native_plan):
        yield from read_span(span, schema, controller, fail_on_data_loss=fail_on_data_loss)


def read_span(
    span: Span, schema: pa.Schema, controller: Controller, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The events of a span as record batches of some megabytes, in order.

    ``DataCorruption`` for bytes that are not events, and for lost data unless that is to be skipped.
    """
    gateway = worker_gateway(controller)
    first = span.start
    while first < span.end:
        try:
            yield from _read_from(gateway, span, first, schema)
            return
        except _Truncated as truncated:
            loss = data_loss(span.scope, span.stream, span.segment_id, truncated.wanted, truncated.available)
            if fail_on_data_loss:
                raise loss from truncated.__cause__
            _log.warning("%s", loss)
            first = span.end if truncated.available is None else truncated.available


class _Truncated(Exception):
    def __init__(self, wanted: int, available: int | None) -> None:
        super().__init__(wanted, available)
        self.wanted = wanted
        self.available = available


def _read_from(gateway: StreamGateway, span: Span, first: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    segment = span.segment
    source = gateway.open_range(segment, first, span.end)
    rows = RowBuilder(schema, span.scope, span.stream, span.segment_id, IngestTimes(gateway, span).of)
    window = EventWindow(first, min(window_bytes_default, max(span.end - first, event_header_bytes)))
    try:
        while _fill(source, window):
            index = window.index()
            if index.wanted_bytes > span.end - (window.offset + index.end):
                raise DataCorruption(
                    f"{segment}: at offset {window.offset + index.end} an event of {index.wanted_bytes} bytes begins, "
                    f"but the range to read ends at {span.end}; is the position not between two events?"
                )
            if len(index.starts):
                yield _built(rows, window, index)
            window.consume(index)
    finally:
        source.close()


def _built(rows: RowBuilder, window: EventWindow, index: EventLayout) -> pa.RecordBatch:
    base = window.offset
    try:
        return rows.build(lambda: window.events(index), lambda: index.starts.astype(np.int64) + base, len(index.starts))
    except SegmentNotFound as error:  # The index of its times went with it.
        raise _Truncated(base, None) from error


def _fill(source: RangeSource, window: EventWindow) -> bool:
    """Read as much as the window takes; False at the end of the range."""
    wanted = source.position
    try:
        count = source.read_into(window.free())
    except SegmentTruncated as error:
        raise _Truncated(wanted - window.unconsumed_bytes, error.start_offset) from error
    except SegmentNotFound as error:
        raise _Truncated(wanted - window.unconsumed_bytes, None) from error
    window.filled(count)
    return count > 0
