"""Runs the unmodified PyPI client ``pravega`` against our services: keys, transactions, reader group, byte stream."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pravega_client
import pytest

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import cluster
from tests.support.rust_client import rust_stream_manager

__all__ = ["cluster"]

SCOPE = "interop"
read_time_max_s = 30.0


@pytest.fixture(scope="module")
def manager(cluster: StandaloneProcess) -> pravega_client.StreamManager:
    made = rust_stream_manager(cluster.controller_uri)
    assert made.create_scope(SCOPE)
    return made


@pytest.fixture
def client(cluster: StandaloneProcess) -> Iterator[StreamClient]:
    with StreamClient(cluster.controller_uri) as made:
        yield made


def new_stream(manager: pravega_client.StreamManager, segments: int) -> str:
    name = f"stream-{uuid.uuid4().hex[:8]}"
    assert manager.create_stream(SCOPE, name, segments)
    return name


async def read_group(manager: pravega_client.StreamManager, stream: str, count: int) -> list[bytes]:
    """Events in the order in which one reader of a new group gets them."""
    group = manager.create_reader_group(f"group-{uuid.uuid4().hex[:8]}", SCOPE, stream)
    reader = group.create_reader("reader-1")
    events: list[bytes] = []
    async with asyncio.timeout(read_time_max_s):
        while len(events) < count:
            piece = await reader.get_segment_slice_async()
            events += [event.data() for event in piece]
            reader.release_segment(piece)
    reader.reader_offline()
    return events


async def test_keyed_events_come_back_through_a_reader_group(manager: pravega_client.StreamManager) -> None:
    stream = new_stream(manager, 2)
    writer = manager.create_writer(SCOPE, stream)
    written: dict[str, list[str]] = {f"key-{number % 5}": [] for number in range(5)}
    for number in range(100):
        key = f"key-{number % 5}"
        writer.write_event(f"{key}/{number}", routing_key=key)
        written[key].append(f"{key}/{number}")
    writer.flush()
    found: dict[str, list[str]] = {key: [] for key in written}
    for event in await read_group(manager, stream, 100):
        found[event.decode().partition("/")[0]].append(event.decode())
    assert found == written


async def test_a_transaction_shows_at_its_commit_and_not_before(
    manager: pravega_client.StreamManager, client: StreamClient
) -> None:
    stream = new_stream(manager, 2)
    writer = manager.create_transaction_writer(SCOPE, stream, 1)
    transaction = writer.begin_txn()
    transaction.write_event("one", routing_key="a")
    transaction.write_event("two", routing_key="a")
    assert transaction.is_open()
    assert list(read_events(client, SCOPE, stream)) == []
    transaction.commit()
    aborted = writer.begin_txn()
    aborted.write_event("never", routing_key="a")
    aborted.abort()
    assert await read_group(manager, stream, 2) == [b"one", b"two"]


def test_a_byte_stream_is_written_read_and_truncated(manager: pravega_client.StreamManager) -> None:
    stream = new_stream(manager, 1)
    byte_stream = manager.create_byte_stream(SCOPE, stream)
    assert byte_stream.write(b"hello world") == 11
    byte_stream.flush()
    buffer = bytearray(11)
    byte_stream.seek(0, 0)
    assert byte_stream.readinto(buffer) == 11
    assert bytes(buffer) == b"hello world"
    assert byte_stream.current_tail_offset() == 11
    byte_stream.truncate(6)
    assert byte_stream.current_head_offset() == 6


async def test_both_clients_read_what_the_other_wrote(
    manager: pravega_client.StreamManager, client: StreamClient
) -> None:
    stream = new_stream(manager, 1)
    theirs = manager.create_writer(SCOPE, stream)
    theirs.write_event("theirs", routing_key="k")
    theirs.flush()
    with EventWriter(client, SCOPE, stream) as ours:
        ours.write(b"ours", "k")
    assert [event.data for event in read_events(client, SCOPE, stream)] == [b"theirs", b"ours"]
    assert await read_group(manager, stream, 2) == [b"theirs", b"ours"]


async def test_large_events_pass_through_a_transient_segment(manager: pravega_client.StreamManager) -> None:
    stream = new_stream(manager, 1)
    event = bytes(range(256)) * 4 * 9 * 1024
    writer = manager.create_writer(SCOPE, stream)
    writer.write_event_bytes(event, routing_key="k")
    writer.write_event("small", routing_key="k")
    writer.flush()
    events = await read_group(manager, stream, 2)
    assert events == [event, b"small"]


def test_streams_are_listed_sealed_and_deleted(manager: pravega_client.StreamManager) -> None:
    stream = new_stream(manager, 1)
    assert stream in str(manager.list_stream(SCOPE))
    assert manager.seal_stream(SCOPE, stream)
    assert manager.delete_stream(SCOPE, stream)
    assert f"{SCOPE}/{stream}" not in str(manager.list_stream(SCOPE))
