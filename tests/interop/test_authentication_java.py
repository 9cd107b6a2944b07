"""Pravega's own Java client writes and reads on our services with a user and a password."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.credentials import BasicCredentials
from pravega_streams.stream_manager import StreamManager
from tests.interop.java_client import running_java_client
from tests.support.security_cluster import PASSWORD, authenticating_cluster

SCOPE = "java"
USERS = {
    "admin": "prn::*,READ_UPDATE",
    "writer": "prn::/scope:java/stream:t,READ_UPDATE",
    "reader": "prn::/scope:java/stream:t,READ;prn::/scope:java/reader-group:*,READ_UPDATE",
}
events = 50
read_time_ms = 30_000
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with authenticating_cluster(tmp_path_factory.mktemp("java"), USERS) as started:
        credentials = BasicCredentials("admin", PASSWORD)
        with StreamManager(started.controller_uri, credentials=credentials) as admin:
            admin.create_scope(SCOPE)
            admin.create_stream(SCOPE, "t", 2)
        yield started


def test_it_writes_and_reads_with_what_each_user_may(cluster: StandaloneProcess) -> None:
    with running_java_client(cluster.controller_uri, SCOPE, user=("writer", PASSWORD)) as writing:
        writer = writing.writer("t", large_events=True)
        for number in range(events):
            writer.writeEvent(f"key-{number}", b"%d" % number).get()
        # Above 8 MiB: through a transient segment that the client merges into its parent.
        writer.writeEvent("large", bytes(9 << 20)).get()
        writer.close()
        with pytest.raises(Py4JJavaError, match=r"PERMISSION_DENIED|AuthorizationException|denied"):
            writing.create_group("group", "t")
    with running_java_client(cluster.controller_uri, SCOPE, user=("reader", PASSWORD)) as reading:
        reading.create_group("group", "t")
        reader = reading.reader("reader", "group")
        found: list[bytes] = []
        while len(found) < events + 1:
            event = reader.readNextEvent(read_time_ms)
            assert event.getEvent() is not None or event.isCheckpoint(), f"only {len(found)} events came"
            if event.getEvent() is not None:
                found.append(bytes(event.getEvent()))
        reader.close()
    assert {b"%d" % number for number in range(events)} < set(found)
    assert bytes(9 << 20) in found
