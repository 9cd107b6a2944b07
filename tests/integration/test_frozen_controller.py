"""Freezes one of two controllers under a source and a sink that know both: it costs one wait, and no error.

A controller that is stopped (SIGSTOP) breaks no connection: calls to it get no answer, and no refusal either.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import Sink
from pravega_spark.gateway.connect import gateway_for
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.sink.batch_commit import commit_batch
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.transaction_writer import TransactionWriter
from pravega_spark.source.stream_reader import StreamReader
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.controller.endpoint_choice import EndpointChoice
from tests.support.cluster import running_cluster

S, T = "scope", "events"
batches_before = 3
batches_frozen = 12
rows_per_batch = 20
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path, controllers=2, hung_after_s=0) as started:
        yield started


class Query:
    """Batches as Spark runs them, from a source that reads what the sink of the same stream wrote."""

    def __init__(self, controller: str) -> None:
        self._gateway = gateway_for(controller)
        self._gateway.create_scope(S)
        self._gateway.create_stream(S, T, StreamConfiguration(ScalingPolicy.fixed(3)))
        address = {"controller": controller, "scope": S, "stream": T}
        self._write = WriteOptions.parse(address, Use.STREAM_WRITE)
        read = ReadOptions.parse({**address, "start_stream_cut": "earliest"}, Use.STREAM_READ)
        self._source = StreamReader(read, pa.schema([("event", pa.binary())]))
        self._position = self._source.initialOffset()
        self._sink = Sink(str(uuid.uuid4()), self._write.destination)
        self.batch = 0

    def run_batch(self) -> list[bytes]:
        """Write a batch and read it; returns its events."""
        identity = BatchIdentity(self._sink, "run", self.batch)
        columns = SinkColumns(event=0, key=None)
        writer = TransactionWriter(
            self._gateway, identity, Destinations(S, (S, T)), columns, partition=0, lease_ms=120_000
        )
        events = [b"%d/%d" % (self.batch, number) for number in range(rows_per_batch)]
        message = writer.write([pa.record_batch([pa.array(events, pa.binary())], names=["event"])])
        commit_batch(self._gateway, self._write, [message], self.batch)
        self.batch += 1
        end = self._source.latestOffset(self._position, self._source.getDefaultReadLimit())
        partitions = self._source.partitions(self._position, end)
        self._position = end
        return [row for item in partitions for rows in self._source.read(item) for row in rows.column(0).to_pylist()]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The controllers that a call of the query gave up, one after the other.

    A query calls from the thread that runs it; other threads are those of clients that other tests left behind.
    """
    found: list[int] = []
    failed, thread = EndpointChoice.failed, threading.get_ident()

    def noted(choice: EndpointChoice, index: int) -> None:
        if threading.get_ident() == thread:
            found.append(index)
        failed(choice, index)

    monkeypatch.setattr(EndpointChoice, "failed", noted)
    return found


def test_a_query_goes_on_while_a_controller_is_frozen(cluster: StandaloneProcess, waits: list[int]) -> None:
    query = Query(cluster.controller_uri)
    read: list[bytes] = []
    for _ in range(batches_before):
        read += query.run_batch()
    waits.clear()
    pid = cluster.pid("controller")
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(batches_frozen):
            read += query.run_batch()
        count = len(waits)
    finally:
        os.kill(pid, signal.SIGCONT)
    read += query.run_batch()
    wanted = [b"%d/%d" % (batch, number) for batch in range(query.batch) for number in range(rows_per_batch)]
    assert sorted(read) == sorted(wanted)
    # Each batch has half a dozen calls for a controller, and without avoidance every second one would hang.
    assert 1 <= count <= batches_frozen // 3, "it is waited for once, and avoided for longer and longer"
