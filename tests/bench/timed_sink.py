"""Times the commits of our streaming sink: format ``pravega-timed``.

Spark makes a sink's writer again for the commit of each batch, in a Python worker of its own; what it measures there is
left in a file, one line a batch, in the folder that the environment names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pravega_common.model.transaction_sets import SetDecision
from pravega_spark import datasource
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.ledger.batch import BatchCommit
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.sink.batch_commit import commit_batch
from pravega_spark.sink.commit_protocol import segments_of
from pyspark_pravega import DefaultSource

RECORDS_VARIABLE: Final = "PRAVEGA_BENCH_COMMITS"


class TimedSource(DefaultSource):
    """Our source, unchanged but for the writer."""

    @classmethod
    def name(cls) -> str:
        return "pravega-timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TimedWriter:
        started_s = time.perf_counter()
        writer = datasource.stream_writer(self.options, schema, overwrite)
        return TimedWriter(writer, dict(self.options), time.perf_counter() - started_s)


class TimedWriter(DataSourceStreamArrowWriter):
    """``prepare_s`` is what making the writer took: it connects and looks for the stream."""

    def __init__(self, writer: DataSourceStreamWriter, given: dict[str, str], prepare_s: float) -> None:
        self._writer = writer
        self._given = given
        self._prepare_s = prepare_s

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        options = WriteOptions.parse(self._given, Use.STREAM_WRITE)
        gateway = TimedGateway(worker_gateway(options.controller))
        started_s = time.perf_counter()
        commit_batch(cast(StreamGateway, gateway), options, messages, batchId)
        total_s = time.perf_counter() - started_s
        record = {
            "stream": options.stream,
            "batch": batchId,
            "segments": segments_of(messages),
            "prepare_s": self._prepare_s,
            "decision_s": gateway.decision_s,
            "readable_s": total_s - gateway.decision_s,
            "call_s": total_s,
        }
        with (Path(os.environ[RECORDS_VARIABLE]) / f"{options.stream}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


class TimedGateway:
    """Times the one call that decides a batch; the rest goes through as it is."""

    def __init__(self, gateway: StreamGateway) -> None:
        self._gateway = gateway
        self.decision_s = 0.0

    def commit_transaction_set(self, commit: BatchCommit) -> SetDecision:
        started_s = time.perf_counter()
        try:
            return self._gateway.commit_transaction_set(commit)
        finally:
            self.decision_s += time.perf_counter() - started_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)
