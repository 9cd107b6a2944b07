"""Writes the rows of one task as the options of its sink say; runs on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.provisioning import provision_stream
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.given import StreamName
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.event_time import EventTimes
from pravega_spark.rows.record_columns import RecordColumns, WrittenColumns
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.direct_writer import MultiStreamWriter
from pravega_spark.sink.event_time_notes import note_event_time
from pravega_spark.sink.transaction_writer import TransactionWriter


@dataclass(frozen=True)
class DirectMessage(WriterCommitMessage):
    """The message of one task attempt that wrote without transactions; its rows can be read already."""

    events: int
    size_bytes: int
    streams: tuple[StreamName, ...] = ()
    """The streams that got rows."""
    writer_id: str = ""
    """The name under which event times are noted; empty where they are not followed."""
    event_time_ms: int | None = None


def note_direct(gateway: StreamGateway, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Report the event time of a batch that was written without transactions, whose rows can be read already."""
    written = [message for message in messages if isinstance(message, DirectMessage) and message.writer_id]
    if written:
        streams = {stream for message in written for stream in message.streams}
        times_ms = [message.event_time_ms for message in written]
        note_event_time(gateway, written[0].writer_id, sorted(streams), times_ms)


def _with_texts(batches: Iterable[pa.RecordBatch], index: int) -> Iterator[pa.RecordBatch]:
    """The same rows; where the event is nested it is JSON."""
    for batch in batches:
        if pa.types.is_nested(batch.schema.field(index).type):
            from pravega_spark.rows.json_texts import with_json  # Most writes need nothing of it.

            yield with_json(batch, index)
        else:
            yield batch


def write_rows(
    options: WriteOptions,
    columns: WrittenColumns,
    identity: Callable[[TaskContext | None], BatchIdentity],
    batches: Iterable[pa.RecordBatch],
) -> WriterCommitMessage:
    """Write exactly once under ``identity``, or at least once; streams that only rows name are made as they appear."""
    times = EventTimes(options.event_time_column)
    batches = times.watch(batches)
    batches = _with_texts(batches, columns.event)
    if isinstance(columns, RecordColumns):
        batches, columns = map(columns.pack, batches), columns.packed
    gateway = worker_gateway(options.controller)
    destinations = Destinations(
        options.scope, options.streams[0] if options.streams else None, options.max_streams_per_task
    )

    def provision(scope: str, stream: str, is_lost: bool) -> None:
        provision_stream(gateway, options, scope, stream, is_lost=is_lost)

    context = TaskContext.get()
    if not options.exactly_once:
        direct = MultiStreamWriter(gateway, destinations, columns, provision)
        written = direct.write(batches)
        writer_id = "" if options.event_time_column is None else identity(context).sink.query_id
        return DirectMessage(written.events, written.size_bytes, direct.streams, writer_id, times.greatest_ms)
    writer = TransactionWriter(
        gateway,
        identity(context),
        destinations,
        columns,
        partition=0 if context is None else context.partitionId(),
        lease_ms=options.transaction_timeout_ms,
        provision=provision,
    )
    message = writer.write(batches)
    return replace(message, event_time_ms=times.greatest_ms)
