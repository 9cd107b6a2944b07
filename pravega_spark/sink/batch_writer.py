"""Writes a batch job; each job is one transaction set."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pravega_common.errors import ConfigurationError
from pravega_common.model.transaction_sets import UNNAMED_PREFIX
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.ledger.batch import JOB_PREFIX, BatchIdentity
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.record_columns import WrittenColumns
from pravega_spark.sink.batch_commit import abort_batch, commit_batch
from pravega_spark.sink.commit_protocol import APPLICATION_PREFIX
from pravega_spark.sink.sink_secret import secret_of_write
from pravega_spark.sink.task_writer import note_direct, write_rows
from pravega_spark.spark_errors import in_sentences
from pravega_spark.worker_socket import SentToTask


def batch_identity(options: WriteOptions) -> BatchIdentity:
    """The identity of a batch write, from its options alone.

    Never from task properties: inside ``foreachBatch`` they are the query's, the same for every write. Without a name
    of its own a write gets a random one, and a second run of the job writes its rows a second time.
    """
    run_id = uuid.uuid4().hex
    if options.txn_app_id is not None and options.txn_version is not None:
        name, batch_id = f"{APPLICATION_PREFIX}{options.txn_app_id}", options.txn_version
    elif options.job_id is not None:
        name, batch_id = f"{JOB_PREFIX}{options.job_id}", 0
    else:
        name, batch_id = f"{UNNAMED_PREFIX}{run_id}", 0
    return BatchIdentity(secret_of_write(options, name).sink(name, options.destination), run_id, batch_id)


@in_sentences
class BatchWriter(SentToTask, DataSourceArrowWriter):
    """The writer of one job. Its pickled copies write the tasks and commit: all of them have the identity made here."""

    def __init__(self, options: WriteOptions, columns: WrittenColumns, *, overwrite: bool) -> None:
        """Raises ``ConfigurationError`` for mode overwrite, and when the stream is missing and must not be created."""
        if overwrite:
            raise ConfigurationError("a stream cannot be overwritten; use mode('append'), after truncating the stream")
        self._options = options
        self._columns = columns
        self._identity = batch_identity(options)
        provisioned_gateway(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._columns, lambda _: self._identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            commit_batch(worker_gateway(self._options.controller), self._options, messages)
        elif self._options.event_time_column is not None:
            note_direct(worker_gateway(self._options.controller), messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            abort_batch(worker_gateway(self._options.controller), messages)
