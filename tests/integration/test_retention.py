"""Checks retention on a running standalone with a short period."""

from __future__ import annotations

from pathlib import Path

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.errors import EventsTruncated
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

SCOPE = "s"
period_ms = 300
wait_max_s = 30.0


def test_old_events_go_and_streams_without_policy_stay(tmp_path: Path) -> None:
    often = {"PRAVEGA_CONTROLLER_RETENTION__PERIOD_MS": str(period_ms)}
    with running_cluster(tmp_path, environment=often) as cluster, StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope(SCOPE)
        by_time = RetentionPolicy.by_time(3 * period_ms)
        by_size = RetentionPolicy.by_size(1)
        client.controller.create_stream(SCOPE, "time", StreamConfiguration(retention=by_time))
        client.controller.create_stream(SCOPE, "size", StreamConfiguration(retention=by_size))
        client.controller.create_stream(SCOPE, "all")
        for name in ("time", "size", "all"):
            _write(client, name, b"old")
        _wait_for(client, "time", [])
        # What was written first goes once something that is to be kept comes after it.
        assert _events(client, "size") == [b"old"]
        _write(client, "size", b"new")
        _wait_for(client, "size", [b"new"])
        assert _events(client, "all") == [b"old"]


def _write(client: StreamClient, stream: str, event: bytes) -> None:
    with EventWriter(client, SCOPE, stream) as writer:
        writer.write(event, "k")


def _events(client: StreamClient, stream: str) -> list[bytes]:
    return [bytes(event.data) for event in read_events(client, SCOPE, stream)]


def _wait_for(client: StreamClient, stream: str, expected: list[bytes]) -> None:
    """Polls, since a client gets no notice that its stream was truncated."""

    def is_as_expected() -> bool:
        try:
            return _events(client, stream) == expected
        except EventsTruncated:  # between the question for the head and the read
            return False

    eventually_blocking(is_as_expected, f"{expected} alone in {stream}", wait_max_s)
