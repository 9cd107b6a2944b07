"""Writes and reads over TLS with Pravega's own Java client, which validates the names in our certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from tests.interop.java_client import running_java_client
from tests.support.cluster import running_cluster

pytestmark = pytest.mark.timeout(600)

events_count = 20
read_wait_ms = 2_000
reads_max = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path / "tls", tls=True, tier1="file") as started:
        yield started


@pytest.fixture
def client(cluster: StandaloneProcess) -> Iterator[StreamClient]:
    with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file) as made:
        made.controller.create_scope("java")
        made.controller.create_stream("java", "events", StreamConfiguration(ScalingPolicy.fixed(2)))
        yield made


def test_the_java_client_writes_and_reads(cluster: StandaloneProcess, client: StreamClient) -> None:
    wanted = sorted(f"event {number}".encode() for number in range(events_count))
    with running_java_client(cluster.controller_uri, "java", cluster.ca_file) as java:
        writer = java.writer("events")
        for number, event in enumerate(wanted):
            writer.writeEvent(str(number), event)
        writer.flush()
        writer.close()
        java.create_group("group", "events")
        reader = java.reader("reader", "group")
        found: list[bytes] = []
        for _ in range(reads_max):
            event = reader.readNextEvent(read_wait_ms).getEvent()
            found += [] if event is None else [bytes(event)]
            if len(found) == events_count:
                break
        reader.close()
    assert sorted(found) == wanted
    assert sorted(event.data for event in read_events(client, "java", "events")) == wanted
