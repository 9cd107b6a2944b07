"""Requests other than appends that the recorded probe does not cover."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import ContainerNotHosted, ContainerOffline, Fenced
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    Command,
    ConditionalBlockEnd,
    CreateSegment,
    CreateTransientSegment,
    DataAppended,
    DeleteSegment,
    ErrorMessage,
    GetSegmentAttribute,
    GetStreamSegmentInfo,
    Hello,
    KeepAlive,
    LocateOffset,
    MergedSource,
    MergeSegments,
    MergeSegmentsBatch,
    NoSuchSegment,
    OffsetLocated,
    OperationUnsupported,
    ReadSegment,
    SealSegment,
    SegmentAttribute,
    SegmentAttributeUpdated,
    SegmentCreated,
    SegmentIsSealed,
    SegmentRead,
    SegmentsBatchMerged,
    SegmentSealed,
    SegmentsMerged,
    SetupAppend,
    StreamSegmentInfo,
    TruncateSegment,
    UpdateSegmentAttribute,
    UpdateSegmentPolicy,
    WireAttributeUpdate,
    WrongHost,
)
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    EXPECTED_INDEX_EVENT_SIZE,
    ROLLOVER_SIZE,
    SCALE_POLICY_RATE,
    SCALE_POLICY_TYPE,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.host import transient_segments
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
INDEX = SEGMENT + "#index"
SOURCE = SEGMENT + "#transaction." + "0" * 32
WRITER = b"w" * 16
MARK = b"m" * 16
TWO_EVENTS = AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 2)


async def test_create_keeps_the_policy_as_attributes(client: WireClient, store: InMemorySegmentStore) -> None:
    await client.call(CreateSegment(1, SEGMENT, 100, 2, "", -5), SegmentCreated)
    values = [
        await store.get_attribute(SEGMENT, name) for name in (SCALE_POLICY_TYPE, SCALE_POLICY_RATE, ROLLOVER_SIZE)
    ]
    assert values == [2, 100, 0]
    reply = await client.call(GetSegmentAttribute(2, SEGMENT, SCALE_POLICY_RATE), SegmentAttribute)
    assert reply == SegmentAttribute(2, 100)


@pytest.mark.parametrize(
    "request_command",
    [
        CreateSegment(9, "", 0, 0),
        CreateSegment(9, "a\nb", 0, 0),
        CreateSegment(9, "x" * 3000, 0, 0),
        CreateSegment(9, SEGMENT, 0, 7),
        UpdateSegmentPolicy(9, SEGMENT, 0, -1),
        ReadSegment("", 0, 10, "", 9),
        ReadSegment(SEGMENT, -1, 10, "", 9),
        MergeSegments(9, SEGMENT, SOURCE, "", (WireAttributeUpdate(MARK, 77, 1, 0),)),
    ],
    ids=lambda command: f"{type(command).__name__}",
)
async def test_bad_arguments_are_named(
    client: WireClient, store: InMemorySegmentStore, request_command: Command
) -> None:
    reply = await client.call(request_command, ErrorMessage)
    assert (reply.request_id, reply.error_code) == (9, 0)
    assert reply.message
    await client.call(KeepAlive(), KeepAlive)


async def test_locate_offset_answers_a_boundary(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    for block in (b"abc", b"def"):
        await store.append(SEGMENT, [block])
    for target, located in ((0, 3), (3, 3), (4, 6), (9, 6)):
        assert await client.call(LocateOffset(3, SEGMENT, target), OffsetLocated) == OffsetLocated(3, SEGMENT, located)
    assert (await client.call(LocateOffset(9, SEGMENT, -1), ErrorMessage)).request_id == 9
    assert (await client.call(LocateOffset(9, "scope/stream/9.#epoch.0", 1), NoSuchSegment)).request_id == 9


async def test_index_segments_can_be_read(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [b"abc"], [TWO_EVENTS])
    info = await client.call(GetStreamSegmentInfo(1, INDEX), StreamSegmentInfo)
    assert (info.exists, info.write_offset) == (True, 24)
    size = await client.call(GetSegmentAttribute(2, INDEX, EXPECTED_INDEX_EVENT_SIZE), SegmentAttribute)
    assert size.value == 24
    record = await client.call(ReadSegment(INDEX, 0, 24, "", 3), SegmentRead)
    assert bytes(record.data[:16]) == (3).to_bytes(8, "big") + (2).to_bytes(8, "big")


@pytest.mark.parametrize(
    "request_command",
    [
        CreateSegment(9, "scope/stream/7.#epoch.0#index", 0, 0),
        DeleteSegment(9, INDEX),
        SealSegment(9, INDEX),
        TruncateSegment(9, INDEX, 24),
        UpdateSegmentAttribute(9, INDEX, MARK, 1, 2),
        MergeSegments(9, SEGMENT, INDEX),
        MergeSegments(9, INDEX, SOURCE),
        MergeSegmentsBatch(9, SEGMENT, (SOURCE, INDEX)),
        SetupAppend(9, b"0123456789abcdef", INDEX),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_index_segments_cannot_be_changed(
    client: WireClient, store: InMemorySegmentStore, request_command: Command
) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [b"abc"])
    reply = await client.call(request_command, OperationUnsupported)
    assert reply.request_id == 9
    assert (await store.get_info(INDEX)).length == 24


# ---- reads -----------------------------------------------------------------------------------------------------------


async def test_a_waiting_read_blocks_nothing_and_wakes_on_append(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    client.send(*(ReadSegment(SEGMENT, 0, 100, "", rid) for rid in range(20)), KeepAlive())
    await client.expect(KeepAlive)
    info = await client.call(GetStreamSegmentInfo(50, SEGMENT), StreamSegmentInfo)
    assert info.write_offset == 0
    await store.append(SEGMENT, [b"ab", b"cd"])
    replies = [await client.expect(SegmentRead) for _ in range(20)]
    assert {reply.request_id for reply in replies} == set(range(20))
    assert all(reply.data == b"abcd" and reply.at_tail and not reply.end_of_segment for reply in replies)


async def test_a_seal_answers_waiting_reads_with_their_offset(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    client.send(ReadSegment(SEGMENT, 5, 100, "", 1), SealSegment(2, SEGMENT))
    replies = [await client.reply(), await client.reply()]
    assert SegmentSealed(2, SEGMENT) in replies
    assert SegmentIsSealed(1, SEGMENT, "", 5) in replies


async def test_deletion_and_stop_answer_waiting_reads_with_nothing(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    client.send(ReadSegment(SEGMENT, 0, 100, "", 1))
    client.send(DeleteSegment(2, SEGMENT))
    kinds = {type(await client.reply()).__name__ for _ in range(2)}
    assert kinds == {"SegmentRead", "SegmentDeleted"}
    await store.create_segment(SEGMENT)
    client.send(ReadSegment(SEGMENT, 7, 100, "", 3), KeepAlive())
    await client.expect(KeepAlive)
    store.stop()
    assert await client.expect(SegmentRead) == SegmentRead(SEGMENT, 7, True, False, b"", 3)


async def test_a_read_in_several_pieces_is_one_reply(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [b"abcdef"])
    plain_read = store.read

    async def read(segment: str, offset: int, length_max: int) -> object:
        result = await plain_read(segment, offset, length_max)
        (whole,) = result.data
        return type(result)(result.offset, (whole[:2], whole[2:3], whole[3:]), result.at_tail, result.end_of_segment)

    monkeypatch.setattr(store, "read", read)
    reply = await client.call(ReadSegment(SEGMENT, 0, 100, "", 1), SegmentRead)
    assert reply == SegmentRead(SEGMENT, 0, True, False, b"abcdef", 1)


async def test_a_closed_connection_gives_up_its_reads(server: WireServer, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    client = await WireClient.connect(server.port)
    client.send(*(ReadSegment(SEGMENT, 0, 100, "", rid) for rid in range(10)), KeepAlive())
    await client.expect(KeepAlive)
    waiters = store.waiting_reads(SEGMENT)
    assert len(waiters) == 10
    await client.close()
    await eventually(lambda: all(waiter.cancelled() for waiter in waiters))


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ContainerNotHosted(1), WrongHost), (Fenced("newer owner"), WrongHost), (ContainerOffline("recovering"), None)],
)
async def test_errors_of_the_container(
    client: WireClient,
    store: InMemorySegmentStore,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    expected: type[Command] | None,
) -> None:
    async def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(store, "read", failing)
    monkeypatch.setattr(store, "get_info", failing)
    if expected is None:
        client.send(ReadSegment(SEGMENT, 0, 10, "", 1))
        assert await client.closed_by_server() == []
    else:
        await client.call(ReadSegment(SEGMENT, 0, 10, "", 1), expected)
        await client.call(GetStreamSegmentInfo(2, SEGMENT), expected)


# ---- merges ----------------------------------------------------------------------------------------------------------


async def test_conditional_merge(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    await store.create_segment(SOURCE)
    await store.append(SOURCE, [b"xyz"])
    wrong = MergeSegments(1, SEGMENT, SOURCE, "", (WireAttributeUpdate(MARK, 4, 8, 3),))
    assert await client.call(wrong, SegmentAttributeUpdated) == SegmentAttributeUpdated(1, False)
    right = MergeSegments(2, SEGMENT, SOURCE, "", (WireAttributeUpdate(MARK, 4, 8, -(2**63)),))
    assert await client.call(right, SegmentsMerged) == SegmentsMerged(2, SEGMENT, SOURCE, 3)
    reply = await client.call(GetSegmentAttribute(3, SEGMENT, MARK), SegmentAttribute)
    assert reply.value == 8


async def test_merge_to_a_sealed_target_names_the_source(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    await store.create_segment(SOURCE)
    await store.seal(SEGMENT)
    reply = await client.call(MergeSegments(1, SEGMENT, SOURCE), SegmentIsSealed)
    assert reply == SegmentIsSealed(1, SOURCE, "", -1)


async def test_merge_of_a_source_that_never_was(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    reply = await client.call(MergeSegments(1, SEGMENT, SOURCE), NoSuchSegment)
    assert reply == NoSuchSegment(1, SOURCE, "", -1)


async def test_a_batch_merges_in_order_and_resumes(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    sources = tuple(f"{SEGMENT}#transaction.{number:032x}" for number in range(150))
    for number, source in enumerate(sources):
        await store.create_segment(source)
        await store.append(source, [bytes([number]) * 2])
    request = MergeSegmentsBatch(1, SEGMENT, sources)
    reply = await client.call(request, SegmentsBatchMerged)
    assert reply.merged == tuple(MergedSource(source, 2 * (at + 1)) for at, source in enumerate(sources))
    data = b"".join((await store.read(SEGMENT, 0, 1000)).data)
    assert data == b"".join(bytes([number]) * 2 for number in range(150))
    await store.append(SEGMENT, [b"tail"])
    assert (await client.call(request, SegmentsBatchMerged)).merged == reply.merged
    missing = MergeSegmentsBatch(2, SEGMENT, (*sources, "scope/never"))
    assert await client.call(missing, NoSuchSegment) == NoSuchSegment(2, "scope/never", "", -1)


# ---- transient segments ----------------------------------------------------------------------------------------------


async def test_transient_segments_end_with_their_connection(server: WireServer, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    client = await WireClient.connect(server.port)
    kept = (await client.call(CreateTransientSegment(1, WRITER, SEGMENT), SegmentCreated)).segment
    merged = (await client.call(CreateTransientSegment(2, WRITER, SEGMENT), SegmentCreated)).segment
    assert kept != merged
    client.send(SetupAppend(3, WRITER, merged))
    await client.reply()
    await client.call(ConditionalBlockEnd(WRITER, 0, 0, b"large", 4), DataAppended)
    await client.call(MergeSegments(5, SEGMENT, merged), SegmentsMerged)
    assert kept in store.segment_names
    await client.close()
    await eventually(lambda: kept not in store.segment_names)
    assert store.segment_names == [SEGMENT]


async def test_a_connection_may_write_any_number_of_large_events(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a transient segment and a writer of its own, which are merged away."""
    monkeypatch.setattr(transient_segments, "transient_segments_max", 2)
    await store.create_segment(SEGMENT)
    for number in range(5):
        writer = b"%016d" % number
        segment = (await client.call(CreateTransientSegment(1, writer, SEGMENT), SegmentCreated)).segment
        client.send(SetupAppend(2, writer, segment))
        await client.reply()
        await client.call(ConditionalBlockEnd(writer, 0, 0, b"large", 3), DataAppended)
        await client.call(MergeSegments(4, SEGMENT, segment), SegmentsMerged)
    assert (await store.get_info(SEGMENT)).length == 25
    assert server.budgets.writers.total == 0


async def test_a_transient_segment_that_is_being_made_is_deleted_too(
    server: WireServer, store: InMemorySegmentStore
) -> None:
    client = await WireClient.connect(server.port)
    store.hold()
    client.send(CreateTransientSegment(1, WRITER, SEGMENT), KeepAlive())
    await client.expect(KeepAlive)
    await client.close()
    await eventually(lambda: store.queued_operations == 2)
    store.release()
    await eventually(lambda: store.queued_operations == 0)
    assert store.segment_names == []


# ---- connection ------------------------------------------------------------------------------------------------------


async def test_commands_in_the_same_burst_as_hello(server: WireServer, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    client = await WireClient.connect(server.port, greet=False)
    client.send(Hello(16, 5), GetStreamSegmentInfo(1, SEGMENT), SetupAppend(2, WRITER, SEGMENT))
    assert await client.reply() == Hello(17, 5)
    assert {type(await client.reply()).__name__ for _ in range(2)} == {"StreamSegmentInfo", "AppendSetup"}
    await client.close()


async def test_frames_that_trickle_in(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    for byte in codec.encode(GetStreamSegmentInfo(1, SEGMENT)):
        client.send_raw(bytes([byte]))
        await client.drain()
        await asyncio.sleep(0)
    await client.expect(StreamSegmentInfo)


async def test_stop_ends_connections_and_their_waiting_reads(store: InMemorySegmentStore) -> None:
    server = WireServer(store, InMemoryTableStore(store), store)
    await server.start()
    await store.create_segment(SEGMENT)
    client = await WireClient.connect(server.port)
    client.send(ReadSegment(SEGMENT, 0, 10, "", 1), KeepAlive())
    await client.expect(KeepAlive)
    await server.stop()
    assert await client.closed_by_server() == []
    assert server.connection_count == 0
    await client.close()
