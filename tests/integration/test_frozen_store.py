"""Freezes a store: its clients go to the new owners before it wakes up, and nothing is lost or doubled.

A store that is stopped (SIGSTOP) breaks no connection. Its lease ends, and the controller gives its containers away.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.runtime.clock import SystemClock
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.async_client import AsyncStreamClient
from pravega_streams.batch import range_reader
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.readers.segment_feed import SegmentFeed, SegmentReads
from pravega_streams.segment import segment_client
from tests.support.cluster import running_cluster

SCOPE, STREAM = "frozen", "events"
SEGMENT = "frozen/events/0.#epoch.0"
moved_max_s = 120.0
"""A generous limit: the lease of a store is 10 s, and its containers recover."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("frozen")
    with running_cluster(folder, segment_stores=2, containers=4, hung_after_s=0) as started:
        with StreamClient(started.controller_uri) as client:
            client.controller.create_scope(SCOPE)
            client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(1)))
        yield started


@contextmanager
def frozen_owner(cluster: StandaloneProcess, client: StreamClient) -> Iterator[None]:
    """The store that owns the segment is stopped, and goes on afterwards."""
    port = client.controller.endpoint(SCOPE, STREAM, 0).port
    name = f"segment-store-{port - int(str(cluster.options['segment_store_port']))}"
    pid = cluster.pid(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("event_bytes", [100, 500_000])
def test_a_writer_follows_the_segment(cluster: StandaloneProcess, event_bytes: int) -> None:
    """Also one that had more on its way than the system's buffers hold."""
    before = written_events(cluster)
    events = [f"{event_bytes}-{number}-".encode().ljust(event_bytes, b".") for number in range(40)]
    with StreamClient(cluster.controller_uri) as client, EventWriter(client, SCOPE, STREAM) as writer:
        for event in events[:20]:
            writer.write(event)
        writer.flush()
        with frozen_owner(cluster, client):
            began_s = time.monotonic()
            for event in events[20:]:
                writer.write(event)
            writer.flush()
            assert time.monotonic() - began_s < moved_max_s
    assert written_events(cluster) == before + events


def test_requests_and_reads_follow_the_segment(cluster: StandaloneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = functools.partial(WireSocket, reply_time_s=5 * moved_max_s)
    monkeypatch.setattr(segment_client, "WireSocket", patient)
    monkeypatch.setattr(range_reader, "WireSocket", patient)
    written = written_events(cluster)
    with StreamClient(cluster.controller_uri) as client:
        before = client.segments.info(SEGMENT)
        with frozen_owner(cluster, client):
            began_s = time.monotonic()
            assert client.segments.info(SEGMENT) == before
            assert written_events(cluster) == written
            assert time.monotonic() - began_s < moved_max_s


async def test_a_read_that_waits_at_the_tail_follows_the_segment(cluster: StandaloneProcess) -> None:
    with StreamClient(cluster.controller_uri) as other:
        end = other.segments.info(SEGMENT).length
        async with AsyncStreamClient(cluster.controller_uri) as client:
            reads, woken = SegmentReads(client.metadata, probe_s=1.0), asyncio.Event()
            feed = SegmentFeed(SEGMENT, end, None, reads, SystemClock(), woken.set)
            feed.start()
            await asyncio.to_thread(write_one, cluster, b"before")
            assert await next_event(feed, woken) == b"before"
            with frozen_owner(cluster, other):
                await asyncio.to_thread(write_one, cluster, b"after")
                async with asyncio.timeout(moved_max_s):
                    assert await next_event(feed, woken) == b"after"
            feed.stop()
            reads.close()


async def next_event(feed: SegmentFeed, woken: asyncio.Event) -> bytes:
    while (piece := feed.take()) is None:
        if feed.failure is not None:
            raise feed.failure
        await woken.wait()
        woken.clear()
    event = bytes(next(piece))
    feed.give_back(piece)
    return event


def write_one(cluster: StandaloneProcess, event: bytes) -> None:
    with StreamClient(cluster.controller_uri) as client, EventWriter(client, SCOPE, STREAM) as writer:
        writer.write(event)


def written_events(cluster: StandaloneProcess) -> list[bytes]:
    with StreamClient(cluster.controller_uri) as client:
        return [bytes(event.data) for event in read_events(client, SCOPE, STREAM)]
