"""Reads at the tail of a segment of a store in memory, over real sockets: what waits there costs nobody anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import SegmentTruncated, UnknownOutcome
from pravega_common.model.segments import SegmentRange
from pravega_common.wire import commands as c
from pravega_streams.byte_stream import tail_reader
from pravega_streams.byte_stream.tail_reader import TailReader
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment.segment_client import SegmentClient
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.fakes.wire_store import FakeSegment, FakeStore

SEGMENT = SegmentRange("s", "t", 0, 0.0, 1.0).name
SHORT_S = 0.05


class Directory:
    """A controller that counts how often it is asked for a store."""

    tokens: Any = SimpleNamespace(of_segment=lambda segment: "", forget=lambda segment: None)

    def __init__(self, owner: Endpoint) -> None:
        self.owner = owner
        self.questions = 0

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        self.questions += 1
        return self.owner


@dataclass
class Scene:
    store: InMemorySegmentStore
    server: WireServer
    directory: Directory
    client: SegmentClient
    reader: TailReader

    async def read(self, offset: int, length: int = 100, time_s: float = SHORT_S) -> bytes | None:
        found = await asyncio.to_thread(self.reader.read, offset, length, time_s)
        return None if found is None else bytes(found)

    async def connections_ever(self) -> int:
        await eventually(lambda: self.server.connection_count > 0)
        return self.server.connection_count + len(self.server.recent_closes)


async def served(store: InMemorySegmentStore) -> WireServer:
    server = WireServer(store, InMemoryTableStore(store), store)
    await server.start()
    return server


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    store = InMemorySegmentStore()
    await store.create_segment(SEGMENT)
    server = await served(store)
    directory = Directory(Endpoint("127.0.0.1", server.port))
    client = SegmentClient(directory)
    made = Scene(store, server, directory, client, TailReader(SEGMENT, client))
    yield made
    made.reader.close()
    client.close()
    await server.stop()


async def test_an_idle_reader_keeps_its_connection_and_asks_no_controller(scene: Scene) -> None:
    """It gave its connection up each time, and asked three times in ten seconds."""
    assert await scene.read(0) is None
    questions, connections = scene.directory.questions, await scene.connections_ever()
    for _ in range(5):
        assert await scene.read(0) is None
    assert len(scene.store.waiting_reads(SEGMENT)) == 1
    await scene.store.append(SEGMENT, [b"content"])
    assert await scene.read(0) == b"content"
    assert await scene.read(7) is None
    assert (scene.directory.questions, await scene.connections_ever()) == (questions, connections)


async def test_a_reader_that_goes_elsewhere_leaves_nothing_waiting(scene: Scene) -> None:
    await scene.store.append(SEGMENT, [b"content"])
    assert await scene.read(7) is None
    assert await scene.read(3) == b"tent"
    await eventually(lambda: all(read.done() for read in scene.store.waiting_reads(SEGMENT)))
    assert await scene.read(7, 10) is None
    assert await scene.read(7, 5) is None, "the same read, of which less is wanted"
    assert await scene.read(7, 20) is None
    await scene.store.append(SEGMENT, [b"0123456789abcdef"])
    assert await scene.read(7, 20) == b"0123456789abcdef"


async def test_of_what_waited_for_more_no_more_than_is_wanted_comes(scene: Scene) -> None:
    assert await scene.read(0, 10) is None
    await scene.store.append(SEGMENT, [b"content"])
    assert await scene.read(0, 3) == b"con"
    assert await scene.read(3, 100) == b"tent"


async def test_a_reader_that_waits_follows_its_container_to_another_store(scene: Scene) -> None:
    """The store that it left says nothing: it froze, or keeps the read until it notices."""
    assert await scene.read(0) is None
    other = await served(scene.store)
    scene.directory.owner = Endpoint("127.0.0.1", other.port)
    scene.client.endpoints.forget(SEGMENT)
    assert await scene.read(0) is None
    await eventually(lambda: scene.server.connection_count == 1)  # Its questions still use that store.
    await scene.store.append(SEGMENT, [b"content"])
    assert await scene.read(0) == b"content"
    assert other.connection_count == 2
    scene.reader.close()
    scene.client.close()
    await other.stop()


async def test_the_end_of_a_sealed_segment_ends_a_read_that_waits(scene: Scene) -> None:
    assert await scene.read(0) is None
    await scene.store.seal(SEGMENT)
    assert await scene.read(0, time_s=20.0) == b""


async def test_what_is_gone_is_an_error_with_both_offsets(scene: Scene) -> None:
    await scene.store.append(SEGMENT, [b"content"])
    await scene.store.truncate(SEGMENT, 4)
    with pytest.raises(SegmentTruncated, match="offset 1 is below the start offset 4"):
        await scene.read(1)
    assert await scene.read(4) == b"ent"


@pytest.mark.parametrize("silent_reads", [1, 10_000])
def test_bytes_that_a_connection_never_brings_are_asked_for_on_another(
    monkeypatch: pytest.MonkeyPatch, silent_reads: int
) -> None:
    """Its other end is gone, and nobody said so; or the store sends none at all, which is an error in the end."""
    monkeypatch.setattr(tail_reader, "look_after_s", SHORT_S)
    monkeypatch.setattr(tail_reader, "reply_time_max_s", 5 * SHORT_S)
    store, reads = FakeStore(), 0
    store.segments[SEGMENT] = FakeSegment(bytearray(b"content"))

    def before(command: c.Command) -> str | None:
        nonlocal reads
        reads += isinstance(command, c.ReadSegment)
        return "silent" if isinstance(command, c.ReadSegment) and reads <= silent_reads else None

    store.before = before
    client: Any = SimpleNamespace(endpoints=store, info=lambda segment: SimpleNamespace(length=7, is_sealed=False))
    reader = TailReader(SEGMENT, client)
    if silent_reads == 1:
        assert bytes(reader.read(0, 10, SHORT_S) or b"") == b"content"
        assert store.connection_count == 2
    else:
        with pytest.raises(UnknownOutcome, match="no store sends the bytes at offset 0"):
            reader.read(0, 10, SHORT_S)
    reader.close()
    store.close()
