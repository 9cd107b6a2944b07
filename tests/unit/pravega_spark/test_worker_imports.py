"""Holds down what the processes import that Spark starts for planning, reading and writing.

Spark starts one for every streaming query and for every task slot, and a user waits for the first. So each imports what
its own path needs: what is listed here was measured at 15 ms of CPU or more, or belongs to another path.
"""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pytest

from pravega_common.names import segment_name
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.rows.record_envelope import pack_records
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.partition_reader import SpanPartition
from pravega_spark.source.range_planner import Span
from tests.support.fakes.wire_store import FakeSegment, FakeStore

BASE: Final = "import sys, pyspark.worker, pyspark.sql.worker.plan_data_source_read"
"""What Spark itself imports into such a process, besides what a Python data source needs of it."""
NOWHERE: Final = "tcp://127.0.0.1:1"
"""No controller is there."""
EVENTS: Final = [b"one", b"", b"three" * 100]
ANYWHERE: Final = {"pandas", "pydantic", "aiohttp", "redis", "structlog", "typer", "rich"}
CONTROLLER: Final = {"grpc", "google.protobuf", "asyncio"}
WRITING: Final = {
    "pravega_streams.event.block_writer",
    "pravega_spark.sink.task_writer",
    "pravega_spark.rows.record_envelope",
}
READING: Final = {
    "pravega_spark.source.stream_reader",
    "pravega_streams.segment.event_index",
    "pravega_streams.readers",
}
COMMITS: Final = {"pravega_spark.ledger.coordinator", "pravega_spark.ledger.table_ledger"}


def loaded_by(program: str, given: bytes = b"") -> set[str]:
    """Modules that a program adds to those of Spark's process."""
    code = f"{BASE}\nbefore = set(sys.modules)\n{program}\nprint('loaded:', *set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return set(done.stdout.decode().rpartition("loaded:")[2].split())


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    yield made
    made.close()


def test_a_worker_that_reads(store: FakeStore) -> None:
    """It is told where its segments are served: there is no controller, and nothing of one is imported."""
    data = b"".join(struct.pack(">ii", 0, len(event)) + event for event in EVENTS)
    store.segments[segment_name("s", "t", 0)] = FakeSegment(bytearray(data))
    schema = pa.schema(
        [("event", pa.binary()), ("stream", pa.string()), ("segment_id", pa.int64()), ("offset", pa.int64())]
    )
    options = ReadOptions.parse({"controller": NOWHERE, "scope": "s", "stream": "t"}, Use.BATCH_READ)
    partition = SpanPartition(Span("s", "t", 0, 0, len(data)), stores=[str(store.endpoint)])
    program = (
        "import pickle\nreader, partition, rows = pickle.load(sys.stdin.buffer)\n"
        "assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == rows"
    )
    rows = [
        {"event": event, "stream": "t", "segment_id": 0, "offset": offset}
        for event, offset in zip(EVENTS, (0, 11, 19), strict=True)
    ]
    loaded = loaded_by(program, pickle.dumps((BatchReader(options, schema), partition, rows)))
    assert "pravega_streams.batch.range_reader" in loaded
    assert not loaded & (ANYWHERE | CONTROLLER | WRITING | COMMITS)


def test_a_planner_of_a_streaming_read() -> None:
    """Also the reader that it makes: what that calls later is the next test."""
    loaded = loaded_by(
        "from pravega_spark import datasource\nfrom pyspark.sql.types import BinaryType, StructType\n"
        f"given = {{'controller': '{NOWHERE}', 'scope': 's', 'stream': 't'}}\n"
        "datasource.stream_reader(given, StructType().add('event', BinaryType()))"
    )
    assert "pravega_spark.source.stream_reader" in loaded
    assert not loaded & (ANYWHERE | CONTROLLER | WRITING | COMMITS | {"pyarrow.compute"})


def test_the_calls_of_a_planner() -> None:
    """To ask the controller takes gRPC; to look for the ends of a batch takes nothing of Arrow's functions."""
    loaded = loaded_by(
        "import pravega_streams.controller.client, pravega_streams.segment.event_index\n"
        "import pravega_spark.source.segment_events"
    )
    assert not loaded & (ANYWHERE | WRITING | COMMITS | {"pyarrow.compute"})


def test_a_planner_of_a_write() -> None:
    loaded = loaded_by("import pravega_spark.datasource, pravega_spark.sink.stream_writer")
    assert not loaded & (ANYWHERE | CONTROLLER | READING | COMMITS)


def test_a_worker_that_writes() -> None:
    loaded = loaded_by(
        "import pravega_spark.sink.task_writer, pravega_streams.event.block_writer\n"
        "from pravega_spark.gateway.service import ServiceGateway\n"
        f"ServiceGateway('{NOWHERE}').open_writer('s/t/0.#epoch.0')"
    )
    assert "pravega_spark.sink.transaction_writer" in loaded
    assert not loaded & (ANYWHERE | READING | COMMITS | {"pravega_spark.source.batch_reader"})


def test_a_worker_that_reads_records() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    events = pack_records(
        pa.array([b"one", b"two", b""]),
        pa.array(["a", None, "c"]),
        pa.array([[{"key": "name", "value": b"v"}], [], None], headers),
        pa.array([noon, None, noon], pa.timestamp("us", "UTC")),
    )
    program = (
        "import pickle, pyarrow\nfrom pravega_spark.rows.record_envelope import RecordParts\n"
        "events, headers, time = pickle.load(sys.stdin.buffer)\nparts = RecordParts(events)\n"
        "columns = [parts.keys(), parts.values(), parts.timestamps(time), parts.headers(headers)]\n"
        "assert [column.null_count for column in columns] == [1, 0, 1, 1]"
    )
    given = (events.cast(pa.binary()), headers, pa.timestamp("us", "UTC"))
    assert not loaded_by(program, pickle.dumps(given)) & (ANYWHERE | CONTROLLER | COMMITS)
