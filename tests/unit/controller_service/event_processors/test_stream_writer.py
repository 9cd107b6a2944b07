"""Appends events to a store in memory over the wire: in order, over lost connections and scale events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from controller_service.event_processors.stream_writer import InternalStreamWriter
from pravega_common.errors import InvalidArgument, PravegaError, SegmentSealed, StreamSealed
from pravega_common.model.segments import SegmentOffsets, SegmentRange, Successor
from pravega_common.names import segment_name
from pravega_streams.event.event_writer import event_bytes_max
from pravega_streams.readers.slices import SegmentSlice
from tests.support.event_world import EventWorld, event_world
from tests.support.eventually import eventually

SCOPE, STREAM = "_system", "events"
S0, S1 = (segment_name(SCOPE, STREAM, number) for number in (0, 1 << 32 | 1))


@dataclass
class FakeEventStream:
    """A stream of one open segment."""

    open: list[int] = field(default_factory=lambda: [0])

    async def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        return {0: 0}

    async def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return [SegmentRange(scope, stream, item, 0.0, 1.0) for item in self.open]

    async def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        return []

    async def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        return True

    async def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        return sorted({*start, *end})


@pytest.fixture
async def world() -> AsyncIterator[EventWorld]:
    async with event_world() as made:
        await made.segments.create_segment(S0)
        yield made


@pytest.fixture
def stream() -> FakeEventStream:
    return FakeEventStream()


@pytest.fixture
async def writer(world: EventWorld, stream: FakeEventStream) -> AsyncIterator[InternalStreamWriter]:
    made = InternalStreamWriter(stream, world.clients.resolver, SCOPE, STREAM)
    yield made
    made.close()


async def events_of(world: EventWorld, segment: str) -> list[bytes]:
    length = (await world.segments.get_info(segment)).length
    if not length:
        return []
    data = b"".join((await world.segments.read(segment, 0, length)).data)
    return [bytes(event) for event in SegmentSlice(segment, 0, memoryview(data))]


async def test_events_that_are_written_together_keep_their_order(
    writer: InternalStreamWriter, world: EventWorld
) -> None:
    wanted = [b"%d" % number for number in range(200)]
    await asyncio.gather(*(writer.write("s/t", event) for event in wanted))
    assert await events_of(world, S0) == wanted


async def test_a_lost_connection_ends_a_write_and_not_the_writer(
    writer: InternalStreamWriter, world: EventWorld
) -> None:
    await writer.write("s/t", b"first")
    world.segments.hold()
    held = asyncio.ensure_future(writer.write("s/t", b"second"))
    await eventually(lambda: world.segments.queued_operations > 0, "the append")
    next(iter(writer._pool._connections.values())).close("the test cuts it")
    with pytest.raises(PravegaError):
        await held
    world.segments.release()
    found: list[bytes] = []
    while b"third" not in found:
        try:
            await writer.write("s/t", b"third")
        except PravegaError:
            continue
        found = await events_of(world, S0)
    assert found[0] == b"first"
    assert set(found) <= {b"first", b"second", b"third"}


async def test_a_sealed_segment_is_followed_by_its_successor(
    writer: InternalStreamWriter, world: EventWorld, stream: FakeEventStream
) -> None:
    await writer.write("s/t", b"first")
    await world.segments.seal(S0)
    await world.segments.create_segment(S1)
    stream.open = [1 << 32 | 1]
    with pytest.raises(SegmentSealed):
        await writer.write("s/t", b"second")
    await writer.write("s/t", b"second")
    assert await events_of(world, S1) == [b"second"]


async def test_a_sealed_stream_and_an_event_that_is_too_large_are_refused(
    writer: InternalStreamWriter, stream: FakeEventStream
) -> None:
    with pytest.raises(InvalidArgument, match="larger than"):
        await writer.write("s/t", bytes(event_bytes_max + 1))
    stream.open = []
    with pytest.raises(StreamSealed):
        await writer.write("s/t", b"event")
