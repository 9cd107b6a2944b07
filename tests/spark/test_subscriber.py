"""Retention by consumption with real queries: what the slowest has still to read stays, and the rest goes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentOffsets
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.commands.subscriber import remove
from pravega_spark.source.checkpoint import committed_position
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.spark.driver_process import DriverProcess
from tests.spark.streams import Streams
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

period_ms = 200
wait_max_s = 60.0
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def retaining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Services with retention many times a second."""
    often = {"PRAVEGA_CONTROLLER_RETENTION__PERIOD_MS": str(period_ms)}
    with running_cluster(tmp_path_factory.mktemp("services"), environment=often) as started:
        yield started


class Retained:
    """Streams that keep one byte, and what their subscribers still need."""

    def __init__(self, streams: Streams, client: StreamClient) -> None:
        self.streams = streams
        self._client = client

    def create(self, stream: str) -> None:
        self.streams.gateway.create_scope(self.streams.scope)
        policy = StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(1))
        self._client.controller.create_stream(self.streams.scope, stream, policy)

    def head(self, stream: str) -> SegmentOffsets:
        return self.streams.gateway.head_cut(self.streams.scope, stream)

    def wait_for_head(self, stream: str, wanted: SegmentOffsets) -> None:
        eventually_blocking(lambda: self.head(stream) == wanted, f"{stream} begins at {wanted}", wait_max_s)

    def wait_for_retention(self) -> None:
        """Until retention has run from beginning to end: it truncates a stream that was made later than all others."""
        for _ in range(2):
            witness = f"zz-witness-{uuid.uuid4().hex[:8]}"
            self.create(witness)
            with EventWriter(self._client, self.streams.scope, witness) as writer:
                writer.write(b"old", "k")
                writer.flush()
                # Goes once a cut behind it is known and more is kept.
                eventually_blocking(lambda: self._goes(writer, witness), "retention runs", wait_max_s)  # noqa: B023

    def _goes(self, writer: EventWriter, witness: str) -> bool:
        writer.write(b"new", "k")
        writer.flush()
        return self.head(witness) != {0: 0}

    def run(self, stream: str, name: str) -> None:
        """What there is now, by the query of this name, and its checkpoint."""
        source = self.streams.stream(stream, subscriber=name).load()
        target = self.streams.folder / name
        query = source.writeStream.format("parquet").option("path", str(target)).trigger(**NOW)
        query.option("checkpointLocation", self.checkpoint(name)).start().awaitTermination()

    def checkpoint(self, name: str) -> str:
        return str(self.streams.folder / f"checkpoint-{name}")

    def committed(self, name: str, stream: str) -> SegmentOffsets:
        return committed_position(self.checkpoint(name)).position[f"{self.streams.scope}/{stream}"]

    def read_by(self, name: str) -> list[int]:
        rows = self.streams.spark.read.parquet(str(self.streams.folder / name)).collect()
        return sorted(int(bytes(row.event)) for row in rows)


@pytest.fixture
def retained(retaining: StandaloneProcess, spark: SparkSession, tmp_path: Path) -> Iterator[Retained]:
    streams = Streams(spark, retaining.controller_uri, f"scope-{uuid.uuid4().hex[:8]}", tmp_path)
    with contextlib.closing(streams), StreamClient(retaining.controller_uri) as client:
        yield Retained(streams, client)


@pytest.mark.slow
def test_the_slower_of_two_queries_holds_the_stream(retained: Retained) -> None:
    retained.create("s")
    retained.streams.fill("s", 0, 100)
    for name in ("fast", "slow"):
        retained.run("s", name)
    first = retained.committed("slow", "s")
    retained.streams.fill("s", 100, 200)
    retained.run("s", "fast")
    retained.wait_for_retention()
    assert retained.head("s") == {0: 0}, "the slow query has released nothing, and all of it stays"
    retained.run("s", "slow")
    retained.wait_for_head("s", first)
    retained.streams.fill("s", 200, 300)
    second = retained.committed("fast", "s")
    retained.run("s", "fast")
    retained.wait_for_retention()
    assert retained.head("s") == first
    remove(f"{retained.streams.scope}/slow", yes=True, controller=retained.streams.controller)
    retained.wait_for_head("s", second)
    assert retained.read_by("fast") == list(range(300))
    assert retained.read_by("slow") == list(range(200))


@pytest.mark.slow
def test_a_pattern_holds_a_stream_that_is_made_while_it_runs(retained: Retained) -> None:
    """And one that is there stays held while the query takes up another."""
    streams, name = retained.streams, "branches"
    given = {"stream_pattern": "orders-.*", "subscriber": name, "stream_discovery_interval": "1s"}
    found = {key: value for key, value in streams.options("", **given).items() if key != "stream"}
    source = streams.spark.readStream.format("pravega").options(start_stream_cut="earliest", **found).load()
    target = source.writeStream.format("parquet").option("path", str(streams.folder / name))
    target = target.option("checkpointLocation", retained.checkpoint(name))
    retained.create("orders-1")
    streams.fill("orders-1", 0, 100)
    query = streams.keep(target.start())
    query.processAllAvailable()
    retained.create("orders-2")
    streams.fill("orders-2", 100, 200)
    eventually_blocking(lambda: retained.read_by(name) == list(range(200)), "the new stream is read", wait_max_s)
    query.stop()
    released = {stream: retained.committed(name, stream) for stream in ("orders-1", "orders-2")}
    streams.fill("orders-1", 200, 300)
    streams.fill("orders-2", 300, 400)
    retained.wait_for_retention()
    for stream, position in released.items():
        assert retained.head(stream)[0] <= position[0], "what the query has still to read stays"
    target.trigger(**NOW).start().awaitTermination()
    assert retained.read_by(name) == list(range(400))
    streams.fill("orders-1", 400, 500)
    streams.fill("orders-2", 500, 600)
    target.trigger(**NOW).start().awaitTermination()
    for stream, position in released.items():
        eventually_blocking(lambda: retained.head(stream)[0] > position[0], f"{stream} lets go", wait_max_s)  # noqa: B023
    remove(f"{streams.scope}/{name}", yes=True, controller=streams.controller)


@pytest.mark.slow
def test_a_crash_between_commit_and_release(retained: Retained, tmp_path: Path) -> None:
    streams = retained.streams
    retained.create("from")
    streams.create("to")
    streams.fill("from", 0, 400)
    given = {
        "controller": streams.controller,
        "scope": streams.scope,
        "source": "from",
        "target": "to",
        "checkpoint": retained.checkpoint("copy"),
        "sink": {},
        "bytes": 2_000,
        "source_options": {"subscriber": "copy"},
    }
    crashed = DriverProcess(given, tmp_path / "crashed.log", "spark.source.batch_committed=stop")
    try:
        crashed.wait_stopped_inside()
        retained.wait_for_retention()
        assert retained.head("from") == {0: 0}
        assert retained.committed("copy", "from") != {0: 0}
    finally:
        crashed.kill()
    DriverProcess(given, tmp_path / "again.log").finish()
    assert streams.numbers("to") == list(range(400))
    eventually_blocking(lambda: retained.head("from") != {0: 0}, "what was released goes", wait_max_s)
    committed = retained.committed("copy", "from")
    assert retained.head("from")[0] <= committed[0] == streams.gateway.tail_cut(streams.scope, "from")[0]
