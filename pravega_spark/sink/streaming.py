"""Writes the micro-batches of a query; each is decided once and whole.

See docs/controller-api.md 11 and docs/spark-source-and-sink.md A.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_common.model.transaction_sets import label_of
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.record_columns import WrittenColumns
from pravega_spark.sink.batch_commit import abort_batch, commit_batch
from pravega_spark.sink.commit_protocol import streaming_identity
from pravega_spark.sink.sink_secret import NO_SECRET, secret_of_query
from pravega_spark.sink.task_writer import note_direct, write_rows


class StreamingSink:
    """The sink of a query. Spark makes one for the tasks and one for the commit of each batch; only messages pass."""

    def __init__(self, options: WriteOptions, columns: WrittenColumns, *, overwrite: bool) -> None:
        """Raises ``ConfigurationError`` for complete mode, for a secret of the sink that cannot be used, and when the
        stream is missing and must not be created."""
        if overwrite:
            raise ConfigurationError(
                "output mode complete would write the whole result into the stream again at every batch; use append, "
                "or foreachBatch with a batch write"
            )
        self._options = options
        self._columns = columns
        # Made and read here, on the driver, and taken to the tasks with this object.
        self._secret = secret_of_query(options) if options.exactly_once else NO_SECRET
        provisioned_gateway(options)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._columns, self._identity, batches)

    def _identity(self, context: TaskContext | None) -> BatchIdentity:
        if context is None:
            raise InvalidArgument("no Spark task runs here, so the batch to write for is not known")
        label = label_of(self._options.queryname or "")
        return streaming_identity(context.getLocalProperty, self._options.destination, self._secret, label)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        if self._options.exactly_once:
            commit_batch(worker_gateway(self._options.controller), self._options, messages, batch_id)
        elif self._options.event_time_column is not None:
            note_direct(worker_gateway(self._options.controller), messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            abort_batch(worker_gateway(self._options.controller), messages)
