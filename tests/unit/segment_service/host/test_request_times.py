"""Requests of every kind are timed over a real socket, and waiting for new bytes is not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    CreateSegment,
    CreateTransientSegment,
    DataAppended,
    GetStreamSegmentInfo,
    NoSuchSegment,
    ReadSegment,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
    StreamSegmentInfo,
)
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(store: InMemorySegmentStore, clock: ManualClock) -> AsyncIterator[WireServer]:
    made = WireServer(store, InMemoryTableStore(store), store, clock=clock)
    await made.start()
    yield made
    store.release()
    await made.stop()


def block(number: int) -> AppendBlockEnd:
    return AppendBlockEnd(WRITER, 3, b"abc", 1, number, number)


async def set_up(client: WireClient) -> None:
    await client.call(CreateSegment(1, SEGMENT, 0, 0), SegmentCreated)
    await client.call(SetupAppend(2, WRITER, SEGMENT), AppendSetup)


async def test_one_append_of_a_writer_at_a_time_is_timed(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, clock: ManualClock
) -> None:
    await set_up(client)
    store.hold()
    client.send(block(1), block(2), block(3))
    await client.drain()
    await eventually(lambda: server.budgets.in_flight.appends == 3, "three appends")
    await clock.advance(2.0)
    store.release()
    for _ in range(3):
        await client.expect(DataAppended)
    assert (server.times.appends.count, server.times.appends.sum_s) == (1, 2.0)
    await client.call(block(4), DataAppended)
    assert server.times.appends.count == 2


async def test_an_append_that_failed_is_not_timed_and_ends_no_timing(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    await set_up(client)
    await store.delete(SEGMENT)
    await client.call(block(1), NoSuchSegment)
    assert server.times.appends.count == 0
    await store.create_segment(SEGMENT)
    await client.call(SetupAppend(3, WRITER, SEGMENT), AppendSetup)
    await client.call(block(2), DataAppended)
    assert server.times.appends.count == 1


async def test_a_read_that_waits_for_bytes_is_not_timed(client: WireClient, server: WireServer) -> None:
    await set_up(client)
    client.send(ReadSegment(SEGMENT, 0, 100, "", 5))
    await client.drain()
    await eventually(lambda: server.budgets.reads == 1, "a waiting read")
    client.send(block(1))
    answers = [await client.reply(), await client.reply()]
    assert {type(answer) for answer in answers} == {DataAppended, SegmentRead}
    assert (server.times.reads.count, server.times.read_bytes) == (0, 3)
    await client.call(ReadSegment(SEGMENT, 1, 100, "", 6), SegmentRead)
    assert (server.times.reads.count, server.times.read_bytes) == (1, 5)


async def test_each_kind_of_request_is_counted_by_its_name(client: WireClient, server: WireServer) -> None:
    await set_up(client)
    for number in range(3):
        await client.call(GetStreamSegmentInfo(number, SEGMENT), StreamSegmentInfo)
    await client.call(GetStreamSegmentInfo(7, "scope/stream/9.#epoch.0"), NoSuchSegment)
    await client.call(CreateTransientSegment(8, bytes(16), SEGMENT), SegmentCreated)
    counts = {name: times.count for name, times in server.times.requests.items()}
    assert counts == {"CreateSegment": 1, "SetupAppend": 1, "GetStreamSegmentInfo": 4, "CreateTransientSegment": 1}
