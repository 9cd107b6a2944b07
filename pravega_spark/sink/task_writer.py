"""Writes the rows of one task as the options of its sink say; runs on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pravega_spark.gateway.provisioning import provision_stream
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.record_columns import RecordColumns, WrittenColumns
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.direct_writer import MultiStreamWriter
from pravega_spark.sink.transaction_writer import TransactionWriter


@dataclass(frozen=True)
class DirectMessage(WriterCommitMessage):
    """The message of one task attempt that wrote without transactions; its rows can be read already."""

    events: int
    size_bytes: int


def write_rows(
    options: WriteOptions,
    columns: WrittenColumns,
    identity: Callable[[TaskContext | None], BatchIdentity],
    batches: Iterable[pa.RecordBatch],
) -> WriterCommitMessage:
    """Write exactly once under ``identity``, or at least once; streams that only rows name are made as they appear."""
    if isinstance(columns, RecordColumns):
        batches, columns = map(columns.pack, batches), columns.packed
    gateway = worker_gateway(options.controller)
    destinations = Destinations(
        options.scope, options.streams[0] if options.streams else None, options.max_streams_per_task
    )

    def provision(scope: str, stream: str) -> None:
        provision_stream(gateway, options, scope, stream)

    if not options.exactly_once:
        written = MultiStreamWriter(gateway, destinations, columns, provision).write(batches)
        return DirectMessage(written.events, written.size_bytes)
    context = TaskContext.get()
    writer = TransactionWriter(
        gateway,
        identity(context),
        destinations,
        columns,
        partition=0 if context is None else context.partitionId(),
        lease_ms=options.transaction_timeout_ms,
        provision=provision,
    )
    return writer.write(batches)
