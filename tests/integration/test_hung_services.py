"""Freezes services of a standalone: those that hang are started again, and those that only wait are left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.options import hung_after_s_min
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.pages import store_samples

SCOPE, STREAM = "hung", "events"
hung_after_s = hung_after_s_min
restart_max_s = 120.0
"""A generous limit for what takes 15 s and a start."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("hung")
    with running_cluster(folder, containers=2, hung_after_s=hung_after_s) as started:
        with StreamClient(started.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(1)))
        yield started


@pytest.mark.parametrize("name", ["segment-store-0", "controller"])
def test_what_hangs_is_started_again(cluster: StandaloneProcess, name: str) -> None:
    before = read(cluster)
    write(cluster, f"before {name}")
    pid = cluster.pid(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        cluster.wait_restarted(name, pid, restart_max_s)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    write(cluster, f"after {name}")
    assert read(cluster) == [*before, f"before {name}", f"after {name}"]
    assert any("child hangs" in line and f"child={name} " in line for line in log_lines(cluster))


def test_a_store_that_waits_for_redis_is_left_alone(cluster: StandaloneProcess) -> None:
    """For twice as long as a hung process is given: what hangs is Redis, and a new store would wait for it, too."""
    pids, killed = cluster.ready()["pids"], kills(cluster)
    os.kill(pids["redis"], signal.SIGSTOP)
    try:
        eventually_blocking(lambda: silent_s(cluster) > 2 * hung_after_s, "a long silence of Redis", restart_max_s)
    finally:
        os.kill(pids["redis"], signal.SIGCONT)
    write(cluster, "after the silence")
    assert read(cluster)[-1] == "after the silence"
    assert kills(cluster) == killed
    assert cluster.ready()["pids"] == pids


def silent_s(cluster: StandaloneProcess) -> float:
    """How long no Redis has answered the store, as its metrics say."""
    return max(sample.value for sample in store_samples(cluster) if sample.name == "pravega_store_tier1_silent_seconds")


def kills(cluster: StandaloneProcess) -> int:
    return sum("child hangs" in line for line in log_lines(cluster))


def log_lines(cluster: StandaloneProcess) -> list[str]:
    return cluster.log_file.read_text().splitlines()


def write(cluster: StandaloneProcess, event: str) -> None:
    with StreamClient(cluster.controller_uri) as client, EventWriter(client, SCOPE, STREAM) as writer:
        writer.write(event.encode())


def read(cluster: StandaloneProcess) -> list[str]:
    with StreamClient(cluster.controller_uri) as client:
        return [bytes(event.data).decode() for event in read_events(client, SCOPE, STREAM)]
