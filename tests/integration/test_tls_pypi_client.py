"""Runs the unmodified PyPI client ``pravega``, the Rust client, against services with TLS, without and with users."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.credentials import BasicCredentials
from tests.support.cluster import running_cluster
from tests.support.security_cluster import PASSWORD, authenticating_cluster

events_count = 50
time_max_s = 100
OPTIONS: dict[str, Any] = {"tls": True, "tier1": "file", "host": "localhost"}
"""The Rust client compares certificates with names, not with addresses."""

PROGRAM = """
import asyncio, os, sys
import pravega_client

async def main(controller, count, is_asked):
    manager = pravega_client.StreamManager(controller, is_asked, True)
    manager.create_scope("rust")
    manager.create_stream("rust", "events", 2)
    writer = manager.create_writer("rust", "events")
    for number in range(count):
        writer.write_event(f"event {number}", routing_key=str(number % 5))
    writer.flush()
    group = manager.create_reader_group("group", "rust", "events")
    reader = group.create_reader("reader")
    found = []
    while len(found) < count:
        piece = await reader.get_segment_slice_async()
        found += [event.data().decode() for event in piece]
        reader.release_segment(piece)
    reader.reader_offline()
    print(*sorted(found), sep="\\n", flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3))
# The threads of the client call Python when an answer comes, also while the interpreter ends, which aborts.
os._exit(0)
"""


def run(
    cluster: StandaloneProcess, folder: Path, environment: Mapping[str, str], *more: str
) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client reads its variables once."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.controller_uri, str(events_count), *more],
        env={"PATH": "", "pravega_client_tls_cert_path": cluster.ca_file, **environment},
        cwd=folder, capture_output=True, text=True, timeout=time_max_s, check=False,
    )  # fmt: skip


def compare(done: subprocess.CompletedProcess[str], client: StreamClient) -> None:
    """All events came back to their writer, and are there for our client."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == sorted(f"event {number}" for number in range(events_count))
    assert len(list(read_events(client, "rust", "events"))) == events_count


def test_events_go_there_and_back(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "tls", as_is="its subject is TLS without users", **OPTIONS) as cluster:
        done = run(cluster, tmp_path, {})
        with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file) as client:
            compare(done, client)


def test_a_user_shows_a_password(tmp_path: Path) -> None:
    users = {"rust": "prn::*,READ_UPDATE"}
    basic = {"method": "Basic", "username": "rust", "password": PASSWORD}
    with authenticating_cluster(tmp_path / "both", users, **OPTIONS) as cluster:
        done = run(cluster, tmp_path, {f"pravega_client_auth_{name}": text for name, text in basic.items()}, "asked")
        own = BasicCredentials("rust", PASSWORD)
        with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file, credentials=own) as client:
            compare(done, client)
