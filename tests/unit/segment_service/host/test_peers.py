"""Peers that are slow, silent or too many: what each may hold of a server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from pravega_common.services.host_counts import HostCounts
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    THROTTLED,
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    CreateTableSegment,
    DataAppended,
    ErrorMessage,
    GetStreamSegmentInfo,
    Hello,
    KeepAlive,
    ReadSegment,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
    StreamSegmentInfo,
)
from segment_service.host.admission import Admission
from segment_service.host.budgets import frame_time_max_s, hello_time_max_s
from segment_service.host.held_bytes import (
    OpenFrames,
    UnsentReplies,
    look_s,
    stalled_time_max_s,
    untaken_look_s,
    untaken_time_max_s,
)
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
MIB = 1 << 20
Serve = Callable[..., "contextlib.AbstractAsyncContextManager[WireServer]"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def serve(store: InMemorySegmentStore, clock: ManualClock) -> AsyncIterator[Serve]:
    @contextlib.asynccontextmanager
    async def made(**limits: int) -> AsyncIterator[WireServer]:
        server = WireServer(store, InMemoryTableStore(store), store, clock=clock, **limits)  # type: ignore[arg-type]
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
        assert server.failure is None

    yield made


def reasons(server: WireServer) -> list[str]:
    return [reason for _, reason in server.recent_closes]


async def test_who_says_no_hello_in_time_is_closed(serve: Serve, clock: ManualClock) -> None:
    """Neither a Hello byte by byte nor other frames are a Hello."""
    async with serve() as server:
        polite = await WireClient.connect(server.port)
        silent, dribbling, talking = [await WireClient.connect(server.port, greet=False) for _ in range(3)]
        await eventually(lambda: server.connection_count == 4)
        for byte in codec.encode(Hello(17, 5))[:-1]:
            dribbling.send_raw(bytes([byte]))
            await dribbling.drain()
        await talking.call(KeepAlive(), KeepAlive)
        await clock.advance(hello_time_max_s - 0.1)
        assert server.connection_count == 4
        await clock.advance(0.2)
        for client in (silent, dribbling, talking):
            assert await client.closed_by_server() == []
            await client.close()
        assert reasons(server) == ["no Hello within 10 s"] * 3
        await clock.advance(10 * hello_time_max_s)
        await polite.call(KeepAlive(), KeepAlive)
        await polite.close()


async def test_a_frame_that_stays_open_costs_the_connection(
    serve: Serve, clock: ManualClock, store: InMemorySegmentStore
) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        loris, busy = [await WireClient.connect(server.port) for _ in range(2)]
        frame = codec.encode(GetStreamSegmentInfo(1, SEGMENT))
        loris.send_raw(frame[:3])
        busy.send_raw(frame[:3])
        for number in range(12):
            await clock.advance(frame_time_max_s / 4)
            busy.send_raw(frame[3:] + frame[:3])
            await busy.expect(StreamSegmentInfo)
            if number < 2:
                loris.send_raw(frame[3 + number : 4 + number])
                await loris.drain()
        assert await loris.closed_by_server() == []
        assert reasons(server) == ["a frame was not complete within 60 s"]
        busy.send_raw(frame[3:])
        await busy.expect(StreamSegmentInfo)
        for client in (loris, busy):
            await client.close()


async def test_the_longest_open_large_frame_gives_way(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        server.budgets.open_frames = OpenFrames(300_000)
        old, young = [await WireClient.connect(server.port) for _ in range(2)]
        await young.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
        frame = codec.encode(AppendBlockEnd(WRITER, 400_000, bytes(400_000), 1, 1, 2))
        old.send_raw(frame[:150_000])
        await eventually(lambda: server.budgets.open_frames.bytes == 150_000)
        young.send_raw(frame[:200_000])
        assert await old.closed_by_server() == []
        assert "this one is open for longest" in reasons(server)[0]
        young.send_raw(frame[200_000:250_000])
        await eventually(lambda: server.budgets.open_frames.bytes == 250_000)
        assert server.budgets.open_frames.cut_total == 1
        await young.close()
        await old.close()
        await eventually(lambda: server.budgets.open_frames.bytes == 0)


async def test_an_append_block_without_its_end_is_an_open_frame(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        open_frames = server.budgets.open_frames = OpenFrames(300_000)
        old, young = [await WireClient.connect(server.port) for _ in range(2)]
        block = AppendBlock(WRITER, bytes(150_000))
        old.send(SetupAppend(1, WRITER, SEGMENT), block)
        await eventually(lambda: open_frames.bytes == 150_000)
        await old.expect(AppendSetup)
        young.send(SetupAppend(2, WRITER, SEGMENT))
        await young.expect(AppendSetup)
        young.send(block)
        await eventually(lambda: open_frames.bytes == 300_000)
        old.send(AppendBlockEnd(WRITER, 150_000, b"", 1, 1, 2), block)
        await old.expect(DataAppended)
        await eventually(lambda: open_frames.bytes == 300_000)
        old.send_raw(codec.encode(AppendBlockEnd(WRITER, 150_000, bytes(150_000), 1, 2, 3))[:70_000])
        await young.closed_by_server()
        assert "this one is open for longest" in reasons(server)[0]
        await eventually(lambda: open_frames.bytes == 220_000)
        await young.close()
        await old.close()
        await eventually(lambda: open_frames.bytes == 0)


async def test_above_the_limit_only_controllers_are_served(serve: Serve) -> None:
    async with serve(connections_max=3) as server:
        clients = [await WireClient.connect(server.port) for _ in range(3)]
        refused = await WireClient.connect(server.port)
        refused.send(SetupAppend(7, WRITER, SEGMENT))
        answer = await refused.expect(ErrorMessage)
        assert (answer.request_id, answer.error_code) == (7, THROTTLED)
        assert "3 connections already, its limit (store.connections_max)" in answer.message
        assert await refused.closed_by_server() == []
        controller = await WireClient.connect(server.port)
        await controller.call(KeepAlive(), KeepAlive)
        await controller.call(CreateTableSegment(1, "_system/_tables/scopes"), SegmentCreated)
        await controller.call(GetStreamSegmentInfo(2, "_system/_tables/scopes"), StreamSegmentInfo)
        assert server.admission.refused_total == 1
        await clients[0].close()
        await eventually(lambda: server.connection_count == 3)
        another = await WireClient.connect(server.port)
        another.send(SetupAppend(7, WRITER, "no/such/segment"))
        assert not isinstance(await another.reply(), ErrorMessage)
        for client in (*clients[1:], refused, controller, another):
            await client.close()


async def test_one_host_has_so_many_connections_and_others_go_on(serve: Serve) -> None:
    async with serve(connections_max=100, connections_per_peer_max=3) as server:
        greedy = [await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0)) for _ in "abcd"]
        await eventually(lambda: server.connection_count == 4)
        fourth = WireClient(*greedy[3])
        await fourth.call(Hello(17, 5), Hello)
        answer = await fourth.call(GetStreamSegmentInfo(7, SEGMENT), ErrorMessage)
        assert (answer.request_id, answer.error_code) == (7, THROTTLED)
        assert "3 connections of 127.0.0.2 already" in answer.message
        assert await fourth.closed_by_server() == []
        assert server.admission.refused_total == 1
        honest = await WireClient.connect(server.port)
        await honest.call(CreateTableSegment(1, "_system/_tables/scopes"), SegmentCreated)
        greedy[0][1].close()
        await eventually(lambda: server.connection_count == 3)
        again = WireClient(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0)))
        await again.call(Hello(17, 5), Hello)
        await again.call(GetStreamSegmentInfo(7, "_system/_tables/scopes"), StreamSegmentInfo)
        for _, writer in greedy:
            writer.close()
        await again.close()
        await honest.close()


async def test_a_host_that_only_connects_keeps_no_controller_out(serve: Serve) -> None:
    """It connects without end, and more often in a turn of the loop than there are reserved connections."""
    async with serve(connections_max=3) as server:
        server.admission = Admission(3, reserved=4)
        opened: list[asyncio.StreamWriter] = []
        stopping = asyncio.Event()

        async def attack() -> None:
            while not stopping.is_set():
                for _ in range(5):
                    _, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
                    opened.append(writer)
                    if len(opened) > 500:
                        opened.pop(3).close()
                await asyncio.sleep(0)

        attacker = asyncio.create_task(attack())
        await eventually(lambda: len(opened) > 100)
        controllers = []
        for number in range(3):
            controller = await WireClient.connect(server.port)
            await controller.call(CreateTableSegment(1, f"_system/_tables/{number}"), SegmentCreated)
            controllers.append(controller)
        stopping.set()
        await attacker
        for controller in controllers:
            await controller.call(KeepAlive(), KeepAlive)
        await eventually(lambda: server.connection_count <= 3 + 4)
        assert server.admission.refused_total >= 90
        for writer in opened:
            writer.transport.abort()
        for client in controllers:
            await client.close()


async def test_waiting_reads_are_bounded_over_all_connections(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        server.budgets.reads_max = 6
        clients = [await WireClient.connect(server.port) for _ in range(4)]
        for client in clients[:3]:
            client.send(*(ReadSegment(SEGMENT, 0, 10, "", number) for number in (1, 2)))
        await eventually(lambda: server.budgets.reads == 6)
        clients[3].send(ReadSegment(SEGMENT, 0, 10, "", 3))
        refusal = await clients[3].expect(ErrorMessage)
        assert (refusal.request_id, refusal.segment, refusal.error_code) == (3, SEGMENT, THROTTLED)
        assert "6 reads are waiting at this store" in refusal.message
        await clients[0].close()
        await eventually(lambda: server.budgets.reads == 4)
        clients[3].send(ReadSegment(SEGMENT, 0, 10, "", 4))
        await eventually(lambda: server.budgets.reads == 5)
        await store.append(SEGMENT, [b"bytes"])
        assert (await clients[3].expect(SegmentRead)).data == b"bytes"
        await eventually(lambda: server.budgets.reads == 0)
        assert server.budgets.refused_reads == 1
        for client in clients[1:]:
            await client.close()


async def test_writers_are_bounded_over_all_connections(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        server.budgets.writers = HostCounts("writers", "are set up", 6, 6)
        clients = [await WireClient.connect(server.port) for _ in range(3)]
        for client in clients[:2]:
            for number in (1, 2, 3):
                await client.call(SetupAppend(number, b"%016d" % number, SEGMENT), AppendSetup)
        refusal = await clients[2].call(SetupAppend(7, WRITER, SEGMENT), ErrorMessage)
        assert (refusal.request_id, refusal.segment, refusal.error_code) == (7, SEGMENT, THROTTLED)
        assert "6 writers are set up, the limit of all" in refusal.message
        # Those that are there go on, may be set up again, and their room is free when their connection ends.
        await clients[0].call(SetupAppend(8, b"%016d" % 1, SEGMENT), AppendSetup)
        await clients[1].call(AppendBlockEnd(b"%016d" % 1, 3, b"abc", 1, 1, 9), DataAppended)
        await clients[0].close()
        await eventually(lambda: server.budgets.writers.total == 3)
        await clients[2].call(SetupAppend(10, WRITER, SEGMENT), AppendSetup)
        assert server.budgets.writers.refused_total == 1
        for client in clients[1:]:
            await client.close()
        await eventually(lambda: server.budgets.writers.total == 0)


async def test_a_set_up_inside_a_block_leaves_no_count(serve: Serve, store: InMemorySegmentStore) -> None:
    """It costs the connection, before its token is looked at: another one could do it again until there is no room."""
    await store.create_segment(SEGMENT)
    async with serve() as server:
        client = await WireClient.connect(server.port)
        await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
        client.send(AppendBlock(WRITER, b""), SetupAppend(2, b"v" * 16, SEGMENT))
        assert await client.closed_by_server() == []
        await client.close()
        await eventually(lambda: server.connection_count == 0)
        assert server.budgets.writers.total == 0


async def test_a_writer_that_found_no_room_is_not_set_up(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        server.budgets.writers = HostCounts("writers", "are set up", 1, 1)
        client = await WireClient.connect(server.port)
        await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
        await client.call(SetupAppend(2, b"v" * 16, SEGMENT), ErrorMessage)
        client.send(AppendBlockEnd(b"v" * 16, 3, b"abc", 1, 1, 3))
        assert await client.closed_by_server() == []
        assert "was not set up on this connection" in reasons(server)[0]
        await client.close()
        await eventually(lambda: server.connection_count == 0)
        assert server.budgets.writers.total == 0


async def test_replies_wait_while_too_many_are_unsent_and_a_stalled_peer_gives_way(
    serve: Serve, store: InMemorySegmentStore, clock: ManualClock
) -> None:
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [bytes(MIB)])
    async with serve() as server:
        unsent = server.budgets.unsent = UnsentReplies(clock, 6 * MIB)
        server.spawn(unsent.run(), "unsent")
        stalled = [await WireClient.connect(server.port) for _ in range(8)]
        for client in stalled:
            client.send(*(ReadSegment(SEGMENT, 0, MIB, "", number) for number in range(20)))
        await eventually(lambda: unsent.is_full)
        quick = await WireClient.connect(server.port)
        quick.send(ReadSegment(SEGMENT, 0, MIB, "", 1))
        for _ in range(20):
            await clock.advance(look_s)
        assert unsent.is_full and unsent.bytes < 6 * MIB + 9 * (MIB + 100)
        assert server.connection_count == 9
        answered = asyncio.create_task(quick.expect(SegmentRead))
        while not answered.done():
            await clock.advance(stalled_time_max_s)
        assert len((await answered).data) == MIB
        assert unsent.cut_total > 0
        assert "unsent ones fill the server" in reasons(server)[0]
        for client in (*stalled, quick):
            await client.close()
        await eventually(lambda: server.connection_count == 0)
        assert unsent.bytes == 0


async def test_a_peer_that_takes_none_of_its_replies_is_cut_in_time_and_a_slow_one_is_not(
    serve: Serve, store: InMemorySegmentStore, clock: ManualClock
) -> None:
    """Also while all others find room: its connection, replies and requests are held for nobody."""
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [bytes(MIB)])
    async with serve() as server:
        slow = await WireClient.connect(server.port)
        await eventually(lambda: server.connection_count == 1)
        (served,) = server._connections
        stalled = await WireClient.connect(server.port)
        for client in (slow, stalled):
            client.send(*(ReadSegment(SEGMENT, 0, MIB, "", number) for number in range(40)))
        await eventually(lambda: len(server.budgets.unsent._by_holder) == 2)  # private: who holds replies
        since_s = clock.monotonic_s()
        while server.connection_count == 2 and clock.monotonic_s() < since_s + untaken_time_max_s + 2 * untaken_look_s:
            taken = served.taken_bytes()
            while served.taken_bytes() == taken:
                await asyncio.wait_for(slow.expect(SegmentRead), 10)
            await clock.advance(untaken_look_s)
        assert clock.monotonic_s() >= since_s + untaken_time_max_s
        await eventually(lambda: server.connection_count == 1)
        assert reasons(server) == [f"no reply was taken for {untaken_time_max_s:.0f} s"]
        assert server.budgets.unsent.cut_total == 1
        await stalled.close()
        await slow.close()
        await eventually(lambda: server.connection_count == 0)
        assert server.budgets.unsent.bytes == 0
        assert server.budgets.reads == 0


async def test_a_complete_frame_is_no_open_one(serve: Serve, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    async with serve() as server:
        client = await WireClient.connect(server.port)
        await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
        for number in range(1, 5):
            client.send(AppendBlockEnd(WRITER, 400_000, bytes(400_000), 1, number, number))
            await client.expect(DataAppended)
        assert server.budgets.open_frames.bytes == 0
        await client.close()
