"""Appends over a real socket: set-up, acknowledgements, conditions, failures (docs/wire-protocol.md 3)."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import ContainerNotHosted, ContainerOffline, UnknownOutcome
from pravega_common.wire.commands import (
    NULL_ATTRIBUTE_VALUE,
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    ConditionalAppend,
    ConditionalBlockEnd,
    ConditionalCheckFailed,
    CreateSegment,
    DataAppended,
    InvalidEventNumber,
    KeepAlive,
    NoSuchSegment,
    SegmentCreated,
    SegmentIsSealed,
    SetupAppend,
    WrongHost,
)
from segment_service.contracts.attributes import EVENT_COUNT
from segment_service.host.listener import WireServer
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
OTHER = b"o" * 16


def block(number: int, data: bytes = b"abc", *, writer: bytes = WRITER, events: int = 1) -> AppendBlockEnd:
    return AppendBlockEnd(writer, len(data), data, events, number, 100 + number)


@pytest.fixture
async def writer(client: WireClient) -> WireClient:
    await client.call(CreateSegment(1, SEGMENT, 0, 0), SegmentCreated)
    setup = await client.call(SetupAppend(2, WRITER, SEGMENT), AppendSetup)
    assert setup.last_event_number == NULL_ATTRIBUTE_VALUE
    return client


async def content(store: InMemorySegmentStore, segment: str = SEGMENT) -> bytes:
    result = await store.read(segment, 0, 1 << 20)
    return b"".join(result.data)


async def test_acks_name_the_number_before_and_the_new_length(writer: WireClient, store: InMemorySegmentStore) -> None:
    writer.send(block(1), block(4, b"defg", events=3), block(5, b""))
    assert await writer.reply() == DataAppended(WRITER, 1, NULL_ATTRIBUTE_VALUE, 101, 3)
    assert await writer.reply() == DataAppended(WRITER, 4, 1, 104, 7)
    assert await writer.reply() == DataAppended(WRITER, 5, 4, 105, 7)
    assert await content(store) == b"abcdefg"
    assert await store.get_attribute(SEGMENT, EVENT_COUNT) == 5


async def test_a_block_with_a_partial_event(writer: WireClient, store: InMemorySegmentStore) -> None:
    whole = bytes.fromhex("0000000000000003616263")
    partial = bytes.fromhex("fffffffe00000008000000000000000c")
    writer.send(AppendBlock(WRITER, whole + partial), AppendBlockEnd(WRITER, 11, b"0123456789ab", 2, 2, 9))
    assert (await writer.expect(DataAppended)).current_segment_write_offset == 31
    assert await content(store) == whole + bytes.fromhex("000000000000000c") + b"0123456789ab"


async def test_appends_sent_before_the_set_up_was_answered_wait_for_it(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    client.send(SetupAppend(1, WRITER, SEGMENT), block(1), block(2))
    await client.expect(AppendSetup)
    assert [(await client.expect(DataAppended)).event_number for _ in range(2)] == [1, 2]


async def test_a_failed_set_up_answers_the_appends_behind_it(client: WireClient) -> None:
    client.send(SetupAppend(1, WRITER, SEGMENT), block(1))
    assert await client.reply() == NoSuchSegment(1, SEGMENT, "", -1)
    assert await client.reply() == NoSuchSegment(101, SEGMENT, "", -1)


async def test_a_reconnecting_writer_learns_its_last_number(writer: WireClient, server: WireServer) -> None:
    await writer.call(block(7), DataAppended)
    second = await WireClient.connect(server.port)
    assert (await second.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)).last_event_number == 7
    assert await second.call(block(8), DataAppended) == DataAppended(WRITER, 8, 7, 108, 6)
    # The first connection lost its writer to the second one.
    assert await writer.call(block(9), InvalidEventNumber) == InvalidEventNumber(WRITER, 109, "", 9)
    assert await writer.closed_by_server() == []
    await second.close()


async def test_the_event_number_of_a_restarted_writer_may_not_go_back(writer: WireClient, server: WireServer) -> None:
    await writer.call(block(7), DataAppended)
    second = await WireClient.connect(server.port)
    second.send(SetupAppend(1, WRITER, SEGMENT), block(6))
    assert [type(reply) for reply in await second.closed_by_server()] == [AppendSetup]
    await second.close()


async def test_an_equal_event_number_gets_no_ack(writer: WireClient) -> None:
    await writer.call(block(1), DataAppended)
    writer.send(block(1), KeepAlive())
    await writer.expect(KeepAlive)
    assert await writer.call(block(2), DataAppended) == DataAppended(WRITER, 2, 1, 102, 9)


async def test_conditional_appends(writer: WireClient, store: InMemorySegmentStore) -> None:
    await writer.call(ConditionalBlockEnd(WRITER, 0, 0, b"WXYZ", 5), DataAppended)
    failed = await writer.call(ConditionalBlockEnd(WRITER, 1, 3, b"no", 6), ConditionalCheckFailed)
    assert failed == ConditionalCheckFailed(WRITER, 1, 6)
    assert await writer.call(ConditionalAppend(WRITER, 2, 4, b"z", 7), DataAppended) == DataAppended(
        WRITER, 2, 0, 7, 13
    )
    assert await content(store) == b"WXYZ" + bytes.fromhex("00000000000000017a")


async def test_appends_behind_a_failed_condition_do_not_slip_in(
    writer: WireClient, store: InMemorySegmentStore
) -> None:
    writer.send(ConditionalBlockEnd(WRITER, 1, 99, b"no", 6), block(2))
    await writer.expect(ConditionalCheckFailed)
    assert await writer.reply() == InvalidEventNumber(WRITER, 102, "", 2)
    await writer.closed_by_server()
    assert (await store.get_info(SEGMENT)).length == 0


async def test_acks_leave_in_order_also_when_results_do_not_arrive_in_order(
    server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_segment(SEGMENT)
    futures: list[asyncio.Future[int]] = []

    def append(*_: object, **__: object) -> asyncio.Future[int]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    monkeypatch.setattr(store, "append", append)
    client = await WireClient.connect(server.port)
    client.send(SetupAppend(1, WRITER, SEGMENT), block(1), block(2), KeepAlive())
    await client.expect(KeepAlive)
    await client.expect(AppendSetup)
    futures[1].set_result(6)
    client.send(KeepAlive())
    await client.expect(KeepAlive)
    futures[0].set_result(3)
    assert [(await client.expect(DataAppended)).event_number for _ in range(2)] == [1, 2]
    await client.close()


async def test_every_append_to_a_sealed_segment_is_refused_as_sealed(
    writer: WireClient, store: InMemorySegmentStore
) -> None:
    await writer.call(block(1), DataAppended)
    await store.seal(SEGMENT)
    writer.send(block(2), block(3))
    assert await writer.reply() == SegmentIsSealed(102, SEGMENT, "", 2)
    assert await writer.reply() == SegmentIsSealed(103, SEGMENT, "", 3)
    # The connection stays good for other writers, and set-up on a sealed segment succeeds.
    assert (await writer.call(SetupAppend(5, OTHER, SEGMENT), AppendSetup)).writer_id == OTHER
    assert await writer.call(block(4, writer=OTHER), SegmentIsSealed) == SegmentIsSealed(104, SEGMENT, "", 4)
    assert await writer.call(block(9), SegmentIsSealed) == SegmentIsSealed(109, SEGMENT, "", 9)


async def test_an_error_waits_for_the_appends_before_it(writer: WireClient, store: InMemorySegmentStore) -> None:
    store.hold()
    writer.send(block(1), ConditionalBlockEnd(WRITER, 2, 77, b"no", 6), KeepAlive())
    await writer.expect(KeepAlive)
    store.release()
    await writer.expect(DataAppended)
    await writer.expect(ConditionalCheckFailed)


async def test_a_deleted_segment(writer: WireClient, store: InMemorySegmentStore) -> None:
    await store.delete(SEGMENT)
    assert await writer.call(block(1), NoSuchSegment) == NoSuchSegment(101, SEGMENT, "", -1)


@pytest.mark.parametrize("error", [ContainerOffline("stopping"), UnknownOutcome("lost")])
async def test_appends_that_may_or_may_not_be_stored_close_the_connection(
    writer: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def append(*_: object, **__: object) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    monkeypatch.setattr(store, "append", append)
    writer.send(block(1))
    assert await writer.closed_by_server() == []


async def test_another_store_owns_the_container(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_attribute(*_: object) -> int:
        raise ContainerNotHosted(3)

    monkeypatch.setattr(store, "get_attribute", get_attribute)
    assert await client.call(SetupAppend(4, WRITER, SEGMENT), WrongHost) == WrongHost(4, SEGMENT)


async def test_an_unforeseen_error_costs_one_connection(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_attribute(*_: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(store, "get_attribute", get_attribute)
    client.send(SetupAppend(4, WRITER, SEGMENT))
    assert await client.closed_by_server() == []
    assert server.is_running
    assert "a bug" in server.recent_closes[-1][1]


async def test_an_unforeseen_error_of_a_set_up_gives_the_room_of_appends_back(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for a set-up counts against the limit of all connections."""

    async def fails(segment: str, attribute_id: object) -> int:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    await store.create_segment(SEGMENT)
    monkeypatch.setattr(store, "get_attribute", fails)
    client.send(SetupAppend(1, WRITER, SEGMENT), block(1), block(2))
    await client.closed_by_server()
    assert "ZeroDivisionError" in server.recent_closes[-1][1]
    assert (server.budgets.in_flight.bytes, server.budgets.in_flight.appends) == (0, 0)


async def test_many_writers_share_a_connection(client: WireClient, store: InMemorySegmentStore) -> None:
    writers = [bytes([number]) * 16 for number in range(50)]
    for number in range(50):
        await store.create_segment(f"scope/stream/{number}.#epoch.0")
        client.send(SetupAppend(number, writers[number], f"scope/stream/{number}.#epoch.0"))
    for _ in writers:
        await client.expect(AppendSetup)
    for round_number in range(1, 11):
        client.send(*(block(round_number, bytes([number]), writer=writers[number]) for number in range(50)))
    seen: dict[bytes, list[int]] = {writer: [] for writer in writers}
    for _ in range(500):
        ack = await client.expect(DataAppended)
        seen[ack.writer_id].append(ack.event_number)
    assert all(numbers == list(range(1, 11)) for numbers in seen.values())
    assert await content(store, "scope/stream/7.#epoch.0") == bytes([7]) * 10
