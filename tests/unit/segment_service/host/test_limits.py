"""The limits of what one peer can make the server hold, and the effect of each."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from asyncio import selector_events
from collections.abc import Callable, Sequence

import pytest

from pravega_common.model.table_limits import read_keys_max, value_bytes_max
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    Command,
    CreateTableSegment,
    DataAppended,
    DeleteSegment,
    ErrorMessage,
    GetStreamSegmentInfo,
    KeepAlive,
    MergeSegments,
    MergeSegmentsBatch,
    NoSuchSegment,
    ReadSegment,
    ReadTable,
    RemoveTableKeys,
    SealSegment,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
    StreamSegmentInfo,
    TableEntriesUpdated,
    TableRead,
    TruncateSegment,
    UpdateSegmentAttribute,
    UpdateTableEntries,
    WireAttributeUpdate,
    WireTableEntry,
    WireTableKey,
)
from pravega_common.wire.framing import FrameParser
from segment_service.contracts.table_store import TableEntry
from segment_service.host import connection_load, connection_reads, frame_pump, reply_queue
from segment_service.host.connection import Connection, request_items_max
from segment_service.host.in_flight import InFlightBudget
from segment_service.host.listener import WireServer
from segment_service.host.request_processor import merge_attribute_updates_max, merge_sources_max
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
needs_pauses = pytest.mark.skipif(
    sys.version_info >= (3, 12)
    and "_maybe_pause" not in inspect.getsource(vars(selector_events)["_SelectorSocketTransport"].writelines),
    reason="asyncio of this Python does not pause who writes lines (CVE-2024-12254); stores run on uvloop",
)


def only_connection(server: WireServer) -> Connection:
    """Its private fields are read below: nothing else shows what a connection holds and whether it reads."""
    (connection,) = server._connections
    return connection


async def test_a_closed_gate_leaves_sockets_unread(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
    store.close_gate()
    client.send(AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 2))
    connection = only_connection(server)
    await eventually(lambda: connection.reading_is_paused)
    assert store.queued_operations == 0
    assert (await store.get_info(SEGMENT)).length == 0
    store.open_gate()
    assert (await client.expect(DataAppended)).current_segment_write_offset == 3
    await eventually(lambda: not connection.reading_is_paused)


async def test_a_closed_gate_does_not_hold_up_readers_and_the_controller(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [b"abc"])
    for number, table in enumerate(("_system/_tables/scopes", "scope/t_kvtable/0.#epoch.0")):
        await client.call(CreateTableSegment(number, table), SegmentCreated)
    store.close_gate()
    entry = WireTableEntry(WireTableKey(b"key"), b"value")
    assert (await client.call(ReadSegment(SEGMENT, 0, 10, "", 1), SegmentRead)).data == b"abc"
    await client.call(UpdateTableEntries(2, "_system/_tables/scopes", "", (entry,)), TableEntriesUpdated)
    await client.call(KeepAlive(), KeepAlive)
    client.send(UpdateTableEntries(3, "scope/t_kvtable/0.#epoch.0", "", (entry,)))
    await eventually(lambda: only_connection(server).reading_is_paused)
    store.open_gate()
    await client.expect(TableEntriesUpdated)


async def test_append_bytes_in_flight_are_bounded(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_load, "bytes_in_flight_max", 100_000)
    await store.create_segment(SEGMENT)
    await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
    store.hold()
    client.send(*(AppendBlockEnd(WRITER, 1000, bytes(1000), 1, number, number) for number in range(1, 501)))
    connection = only_connection(server)
    await eventually(lambda: connection.reading_is_paused)
    assert store.queued_operations == 100
    store.release()
    for number in range(1, 501):
        ack = await client.expect(DataAppended)
        assert (ack.event_number, ack.current_segment_write_offset) == (number, number * 1000)


async def test_requests_in_flight_are_bounded(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    running = 0
    most = 0
    plain_info = store.get_info

    async def get_info(segment: str) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return await plain_info(segment)

    monkeypatch.setattr(store, "get_info", get_info)
    await store.create_segment(SEGMENT)
    client.send(*(GetStreamSegmentInfo(number, SEGMENT) for number in range(2000)))
    await eventually(lambda: running == connection_load.requests_in_flight_max)
    gate.set()
    replies = [await client.expect(StreamSegmentInfo) for _ in range(2000)]
    assert [reply.request_id for reply in replies] == list(range(2000))
    assert most == connection_load.requests_in_flight_max


async def test_too_many_waiting_reads_close_the_connection(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    client.send(
        *(ReadSegment(SEGMENT, 0, 10, "", number) for number in range(connection_reads.reads_in_flight_max + 1))
    )
    await client.closed_by_server()
    assert "reads are waiting" in server.recent_closes[-1][1]
    assert all(waiter.cancelled() for waiter in store.waiting_reads(SEGMENT))


async def test_small_frames_are_cut_out_as_they_are_handled(client: WireClient, server: WireServer) -> None:
    """A receive buffer of 1 MiB may hold 131,072 of them, which would take 31 MiB, and keep the loop, all at once."""
    connection, waiting = only_connection(server), list[int]()
    pump = connection._pump  # private, as no peer sees it
    run = pump.run

    def watched() -> None:
        waiting.append(len(pump._backlog))
        run()

    pump.run = watched  # type: ignore[method-assign]
    count = 40 * frame_pump.frames_per_turn_max + 7
    client.send_raw(codec.encode(KeepAlive()) * count + codec.encode(KeepAlive())[:-3])
    for _ in range(count):
        await client.expect(KeepAlive)
    assert max(waiting) <= frame_pump.frames_per_turn_max
    client.send_raw(codec.encode(KeepAlive())[-3:])
    await client.expect(KeepAlive)


@needs_pauses
async def test_a_peer_that_does_not_read_its_replies_costs_little(
    server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_queue, "unsent_bytes_max", 256 * 1024)
    await store.create_segment(SEGMENT)
    data = bytes(range(256)) * 4096
    await store.append(SEGMENT, [data])
    client = await WireClient.connect(server.port)
    connection = only_connection(server)
    count = 300
    client.send(*(ReadSegment(SEGMENT, 0, len(data), "", number) for number in range(count)))
    await eventually(lambda: not connection._replies._writable.is_set())
    for _ in range(50):
        await asyncio.sleep(0)
    assert connection.unsent_bytes() <= 2 * len(data) + 256 * 1024
    seen = set()
    for _ in range(count):
        reply = await client.expect(SegmentRead)
        assert reply.data == data
        seen.add(reply.request_id)
    assert seen == set(range(count))
    await client.call(KeepAlive(), KeepAlive)
    await client.close()


TABLE = "scope/t_kvtable/0.#epoch.0"
LARGE = WireTableEntry(WireTableKey(b"large"), b"x" * value_bytes_max)


async def test_a_read_of_the_same_large_key_again_and_again_is_an_error(
    any_server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await WireClient.connect(any_server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    await client.call(UpdateTableEntries(2, TABLE, "", (LARGE,)), TableEntriesUpdated)
    # 8.5 KB of request took 450 MB, and the answer was a closed connection.
    client.send(ReadTable(3, TABLE, "", (WireTableKey(b"large"),) * 430))
    refusal = await client.expect(ErrorMessage)
    assert (refusal.request_id, refusal.segment, refusal.error_code) == (3, TABLE, 0)
    assert "read fewer keys at a time" in refusal.message
    fifteen = (WireTableKey(b"large"),) * 15
    assert len((await client.call(ReadTable(4, TABLE, "", fifteen), TableRead)).entries) == 15
    await client.close()


class HeldReads:
    """Reads of tables that wait until ``gate`` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0


def hold_reads_of_tables(tables: InMemoryTableStore, patch: pytest.MonkeyPatch) -> HeldReads:
    held = HeldReads()
    plain_get = tables.get

    async def get(segment: str, keys: Sequence[bytes]) -> list[TableEntry]:
        held.begun += 1
        await held.gate.wait()
        return await plain_get(segment, keys)

    patch.setattr(tables, "get", get)
    return held


KEY = WireTableKey(b"key")
UPDATE = WireAttributeUpdate(b"a" * 16, 1, 0, 0)
TOO_MANY = request_items_max + 1


@pytest.mark.parametrize(
    "request_",
    [
        ReadTable(1, TABLE, "", (KEY,) * TOO_MANY),
        ReadTable(1, TABLE, "", (KEY,) * (read_keys_max + 1)),
        ReadTable(1, TABLE, "", (WireTableKey(b""),)),
        RemoveTableKeys(1, TABLE, "", (KEY,) * TOO_MANY),
        UpdateTableEntries(1, TABLE, "", (WireTableEntry(KEY, b""),) * TOO_MANY),
        UpdateTableEntries(1, TABLE, "", (WireTableEntry(KEY, b"x" * (value_bytes_max + 1)),)),
        MergeSegments(1, SEGMENT, SEGMENT + "s", "", (UPDATE,) * TOO_MANY),
        MergeSegments(1, SEGMENT, SEGMENT + "s", "", (UPDATE,) * (merge_attribute_updates_max + 1)),
        MergeSegments(1, SEGMENT + "x" * 3_000, SEGMENT + "s"),
        MergeSegmentsBatch(1, SEGMENT, (SEGMENT + "s",) * TOO_MANY),
        MergeSegmentsBatch(1, SEGMENT, (SEGMENT + "s",) * (merge_sources_max + 1)),
        MergeSegmentsBatch(1, SEGMENT, ("n" * 3_000,)),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_too_much_in_one_request_is_an_error_and_the_connection_goes_on(
    any_server: WireServer, request_: Command
) -> None:
    client = await WireClient.connect(any_server.port)
    await client.call(CreateTableSegment(2, TABLE), SegmentCreated)
    client.send(request_)
    refusal = await client.expect(ErrorMessage)
    assert (refusal.request_id, refusal.error_code) == (1, 0)
    await client.call(KeepAlive(), KeepAlive)
    await client.close()


@needs_pauses
async def test_table_answers_are_not_kept_for_a_peer_that_does_not_take_them(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await WireClient.connect(server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    await client.call(UpdateTableEntries(2, TABLE, "", (LARGE,)), TableEntriesUpdated)
    connection = only_connection(server)
    fifteen = (WireTableKey(b"large"),) * 15
    count = 20
    client.send(*(ReadTable(number, TABLE, "", fifteen) for number in range(count)))
    await eventually(lambda: not connection._replies._writable.is_set())
    for _ in range(50):
        await asyncio.sleep(0)
    assert connection.unsent_bytes() <= 2 * 16 * 1024 * 1024
    seen = {(await client.expect(TableRead)).request_id for _ in range(count)}
    assert seen == set(range(count))
    await client.close()


@needs_pauses
async def test_table_reads_of_a_peer_that_does_not_take_answers_hold_up_no_append(
    store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = InFlightBudget(bytes_max=5_000)
    tables = InMemoryTableStore(store)
    server = WireServer(store, tables, store, budget=budget)
    await server.start()
    await store.create_segment(SEGMENT)
    slow, writer = await WireClient.connect(server.port), await WireClient.connect(server.port)
    await writer.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
    await writer.call(CreateTableSegment(2, TABLE), SegmentCreated)
    await writer.call(UpdateTableEntries(3, TABLE, "", (LARGE,)), TableEntriesUpdated)
    held = hold_reads_of_tables(tables, monkeypatch)
    keys = (WireTableKey(b"large"),) * 15 + tuple(WireTableKey(b"%0100d" % number) for number in range(10))
    count = 20
    slow.send(*(ReadTable(number, TABLE, "", keys) for number in range(count)))
    await eventually(lambda: held.begun == count and budget.is_full)
    held.gate.set()
    await writer.call(AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 2), DataAppended)
    assert {(await slow.expect(TableRead)).request_id for _ in range(count)} == set(range(count))
    await slow.close()
    await writer.close()
    await server.stop()


async def test_bytes_of_the_requests_of_a_connection_are_bounded(
    store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_load, "bytes_in_flight_max", 10_000)
    tables = InMemoryTableStore(store)
    server = WireServer(store, tables, store)
    await server.start()
    client = await WireClient.connect(server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    held = hold_reads_of_tables(tables, monkeypatch)
    keys = tuple(WireTableKey(b"%0100d" % number) for number in range(10))
    client.send(*(ReadTable(number, TABLE, "", keys) for number in range(50)))
    await eventually(lambda: only_connection(server).reading_is_paused and held.begun > 0)
    assert held.begun == 9
    held.gate.set()
    assert [(await client.expect(TableRead)).request_id for _ in range(50)] == list(range(50))
    await client.call(KeepAlive(), KeepAlive)
    await client.close()
    await server.stop()


async def test_a_reply_that_no_frame_holds_is_an_error(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: object) -> Command:
        return TableRead(1, TABLE, (LARGE,) * 17)

    monkeypatch.setattr(server._parts.requests, "answer", answer)
    client.send(GetStreamSegmentInfo(7, SEGMENT))
    assert (await client.expect(ErrorMessage)).request_id == 7
    await client.call(KeepAlive(), KeepAlive)


async def test_a_slow_peer_does_not_slow_another_one(server: WireServer, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [bytes(1 << 20)])
    slow, quick = await WireClient.connect(server.port), await WireClient.connect(server.port)
    slow.send(*(ReadSegment(SEGMENT, 0, 1 << 20, "", number) for number in range(50)))
    for number in range(20):
        reply = await quick.call(ReadSegment(SEGMENT, 0, 1 << 20, "", number), SegmentRead)
        assert len(reply.data) == 1 << 20
    await slow.close()
    await quick.close()


async def test_a_burst_of_frames_is_handled_in_turns(client: WireClient, server: WireServer) -> None:
    connection = only_connection(server)
    burst = [KeepAlive()] * (3 * frame_pump.frames_per_turn_max)
    frames = [(KeepAlive.type_code, memoryview(b""))] * len(burst)
    connection._pump._backlog.extend(frames)
    connection._pump.run()
    assert len(connection._pump._backlog) == 2 * frame_pump.frames_per_turn_max
    assert connection.reading_is_paused
    for _ in burst:
        await client.expect(KeepAlive)
    assert not connection.reading_is_paused


@pytest.mark.parametrize(
    "request_of",
    [
        lambda number: SetupAppend(number, b"%016d" % number, SEGMENT),
        lambda number: GetStreamSegmentInfo(number, SEGMENT),
    ],
)
async def test_a_burst_of_requests_is_handled_in_smaller_turns(
    client: WireClient, server: WireServer, request_of: Callable[[int], Command]
) -> None:
    """A task costs more than a frame, and all that begin in a turn run in the next one, before anybody else."""
    connection = only_connection(server)
    count = 3 * frame_pump.requests_per_turn_max
    frames = list(FrameParser().feed(b"".join(codec.encode(request_of(number)) for number in range(count))))
    connection._pump._backlog.extend(frames)
    connection._pump.run()
    assert len(connection._pump._backlog) == 2 * frame_pump.requests_per_turn_max
    assert connection.reading_is_paused
    for number in range(count):
        assert (await client.expect(NoSuchSegment)).request_id == number
    assert not connection.reading_is_paused


@pytest.mark.parametrize("any_server", ["container"], indirect=True)
@pytest.mark.parametrize(
    "request_of",
    [
        lambda number: SetupAppend(number, b"%016d" % (number % 2), SEGMENT),
        lambda number: SealSegment(number, SEGMENT),
        lambda number: DeleteSegment(number, SEGMENT),
        lambda number: TruncateSegment(number, SEGMENT, 1),
        lambda number: UpdateSegmentAttribute(number, SEGMENT, WRITER, 1, 2),
        lambda number: MergeSegments(number, SEGMENT, SEGMENT + "x"),
    ],
)
async def test_a_refused_request_leaves_nothing_for_the_collector(
    any_server: WireServer, request_of: Callable[[int], Command]
) -> None:
    """The store rarely collects: one long collection of what a peer's refused requests left holds everybody up."""
    client = await WireClient.connect(any_server.port)
    await client.call(request_of(1), NoSuchSegment)
    gc.collect()
    gc.disable()
    try:
        for number in range(100):
            await client.call(request_of(number), NoSuchSegment)
        assert gc.collect() < 100
    finally:
        gc.enable()
    await client.close()


async def test_all_connections_share_a_budget(store: InMemorySegmentStore) -> None:
    budget = InFlightBudget(bytes_max=10_000_000, appends_max=30)
    server = WireServer(store, InMemoryTableStore(store), store, budget=budget)
    await server.start()
    clients = [await WireClient.connect(server.port) for _ in range(4)]
    for number, client in enumerate(clients):
        segment = f"scope/stream/{number}.#epoch.0"
        await store.create_segment(segment)
        await client.call(SetupAppend(1, WRITER, segment), AppendSetup)
    store.hold()
    for client in clients:
        client.send(*(AppendBlockEnd(WRITER, 1, b"x", 1, number, number) for number in range(1, 101)))
    await eventually(lambda: budget.is_full and all(connection.reading_is_paused for connection in server._connections))
    assert store.queued_operations == 30
    store.release()
    for client in clients:
        assert [(await client.expect(DataAppended)).event_number for _ in range(100)] == list(range(1, 101))
    await eventually(lambda: budget.appends == 0)
    assert (budget.bytes, budget.is_full) == (0, False)
    for client in clients:
        await client.close()
    await server.stop()


async def test_the_budget_gets_back_what_a_lost_connection_held(
    store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = InFlightBudget()
    server = WireServer(store, InMemoryTableStore(store), store, budget=budget)
    await server.start()
    await store.create_segment(SEGMENT)
    client = await WireClient.connect(server.port)
    await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
    store.hold()
    client.send(*(AppendBlockEnd(WRITER, 10, bytes(10), 1, number, number) for number in range(1, 11)))
    # A set-up that will fail, with appends waiting for it.
    client.send(SetupAppend(2, b"x" * 16, "no/such/segment"), AppendBlockEnd(b"x" * 16, 5, bytes(5), 1, 1, 2))
    await eventually(lambda: budget.appends >= 10)
    await client.close()
    await eventually(lambda: server.connection_count == 0)
    store.release()
    await eventually(lambda: (budget.bytes, budget.appends) == (0, 0))
    await server.stop()


async def test_appends_in_flight_are_bounded_by_number(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_load, "appends_in_flight_max", 20)
    await store.create_segment(SEGMENT)
    await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
    store.hold()
    client.send(*(AppendBlockEnd(WRITER, 0, b"", 1, number, number) for number in range(1, 51)))
    await eventually(lambda: only_connection(server).reading_is_paused)
    assert store.queued_operations == 20
    store.release()
    assert [(await client.expect(DataAppended)).event_number for _ in range(50)] == list(range(1, 51))
