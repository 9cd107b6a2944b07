"""Batches of reads: each is answered as if it had come alone, none waits, and the limits hold."""

from __future__ import annotations

import pytest

from pravega_common.wire import codec
from pravega_common.wire import commands as c
from pravega_common.wire.versions import batch_read_bytes_max
from segment_service.contracts.segment_store import ReadResult
from segment_service.host.listener import WireServer
from segment_service.host.read_batches import reads_at_work_max
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

WRITER = b"w" * 16
NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(reads_at_work_max + 10)]


async def batch(client: WireClient, *requests: c.Command) -> list[c.Command]:
    answered = await client.call(c.RequestBatch(7, tuple(map(codec.encode, requests))), c.RequestBatchAnswered)
    return [codec.decode_frame(reply) for reply in answered.replies]


async def test_every_read_is_answered_as_if_it_came_alone(any_server: WireServer) -> None:
    client = await WireClient.connect(any_server.port)
    for name in NAMES[:3]:
        await client.call(c.CreateSegment(1, name, 0, 0), c.SegmentCreated)
        await client.call(c.SetupAppend(1, WRITER, name), c.AppendSetup)
        await client.call(c.AppendBlockEnd(WRITER, 10, b"0123456789", 1, 1, 2), c.DataAppended)
    await client.call(c.SealSegment(2, NAMES[1]), c.SegmentSealed)
    await client.call(c.TruncateSegment(3, NAMES[2], 6), c.SegmentTruncated)
    reads = [
        c.ReadSegment(NAMES[0], 2, 8, "", 0),
        c.ReadSegment(NAMES[1], 4, 100, "", 1),
        c.ReadSegment(NAMES[1], 10, 100, "", 2),
        c.ReadSegment(NAMES[2], 2, 8, "", 3),
        c.ReadSegment(NAMES[3], 0, 8, "", 4),
    ]
    alone = []
    for read in reads:
        client.send(read)
        alone.append(await client.reply())
    sent = any_server.times.read_bytes
    assert sent == 8 + 6
    assert list(map(codec.encode, await batch(client, *reads))) == list(map(codec.encode, alone))
    assert any_server.times.read_bytes == 2 * sent
    await client.close()


async def test_no_read_of_a_batch_waits_at_the_tail(client: WireClient, store: InMemorySegmentStore) -> None:
    """Nor does one that would close the connection by itself."""
    await store.create_segment(NAMES[0])
    await store.append(NAMES[0], [b"0123456789"])
    await store.create_segment(NAMES[1])
    await store.seal(NAMES[1])
    replies = await batch(
        client,
        c.ReadSegment(NAMES[0], 10, 8, "", 0),
        c.ReadSegment(NAMES[0], 99, 8, "", 1),
        c.ReadSegment(NAMES[1], 5, 8, "", 2),
        c.ReadSegment(NAMES[0], 0, 8, "", 3),
    )
    assert [type(reply) for reply in replies] == [c.NoReply, c.NoReply, c.NoReply, c.SegmentRead]
    assert [getattr(reply, "request_id", None) for reply in replies] == [0, 1, 2, 3]
    await client.call(c.KeepAlive(), c.KeepAlive)


async def test_only_what_is_not_in_memory_has_to_wait(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES[:3]:
        await store.create_segment(name)
        await store.append(name, [b"0123456789"])
    in_memory, found, read = store.read_in_memory, store.read, []

    async def reading(segment: str, offset: int, length_max: int) -> ReadResult:
        read.append(segment)
        return await found(segment, offset, length_max)

    def cached(segment: str, offset: int, length_max: int) -> ReadResult | None:
        return None if segment == NAMES[1] else in_memory(segment, offset, length_max)

    monkeypatch.setattr(store, "read", reading)
    monkeypatch.setattr(store, "read_in_memory", cached)
    replies = await batch(client, *(c.ReadSegment(NAMES[index], 2, 8, "", index) for index in range(3)))
    assert [bytes(reply.data) for reply in replies if isinstance(reply, c.SegmentRead)] == [b"23456789"] * 3
    assert read == [NAMES[1]]


async def test_more_reads_than_are_at_work_at_once(client: WireClient, store: InMemorySegmentStore) -> None:
    for number, name in enumerate(NAMES):
        await store.create_segment(name)
        await store.append(name, [b"%08d" % number])
    replies = await batch(client, *(c.ReadSegment(name, 0, 8, "", place) for place, name in enumerate(NAMES)))
    assert [bytes(reply.data) for reply in replies if isinstance(reply, c.SegmentRead)] == [
        b"%08d" % number for number in range(len(NAMES))
    ]


async def test_a_batch_that_asks_for_too_much_is_refused_whole(client: WireClient) -> None:
    half = codec.encode(c.ReadSegment(NAMES[0], 0, batch_read_bytes_max // 2 + 1, "", 0))
    reply = await client.call(c.RequestBatch(5, (half, half)), c.ErrorMessage)
    assert (reply.request_id, reply.error_code) == (5, c.ILLEGAL_ARGUMENT)
    assert str(batch_read_bytes_max) in reply.message


@pytest.mark.parametrize("is_first", [True, False])
async def test_reads_have_batches_of_their_own(client: WireClient, is_first: bool) -> None:
    read, info = codec.encode(c.ReadSegment(NAMES[0], 0, 8, "", 0)), codec.encode(c.GetStreamSegmentInfo(1, NAMES[0]))
    client.send(c.RequestBatch(5, (read, info) if is_first else (info, read)))
    assert await client.closed_by_server() == []
