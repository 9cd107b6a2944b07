"""Runs the unmodified PyPI client ``pravega``, which is the Rust client, against services with TLS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from tests.support.cluster import running_cluster

events_count = 50
time_max_s = 100

PROGRAM = """
import asyncio, os, sys
import pravega_client

async def main(controller, count):
    manager = pravega_client.StreamManager(controller, False, True)
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

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
# The threads of the client call Python when an answer comes, also while the interpreter ends, which aborts.
os._exit(0)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """The Rust client compares certificates with names, not with addresses."""
    with running_cluster(tmp_path_factory.mktemp("tls"), tls=True, tier1="file", host="localhost") as started:
        yield started


def run(cluster: StandaloneProcess, folder: Path, ca_file: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client reads the variable once."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.controller_uri, str(events_count)],
        env={"PATH": "", "pravega_client_tls_cert_path": ca_file},
        cwd=folder, capture_output=True, text=True, timeout=time_max_s, check=False,
    )  # fmt: skip


def test_events_go_there_and_back(cluster: StandaloneProcess, tmp_path: Path) -> None:
    done = run(cluster, tmp_path, cluster.ca_file)
    assert done.returncode == 0, done.stderr
    wanted = sorted(f"event {number}" for number in range(events_count))
    assert done.stdout.splitlines() == wanted
    with StreamClient(cluster.controller_uri, ca_file=cluster.ca_file) as client:
        found = [event.data for event in read_events(client, "rust", "events")]
    assert len(found) == events_count
