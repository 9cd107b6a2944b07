"""Closed connections are freed at once, and leave no cycles of objects, whose long collections hold everybody up.

With the event loop of the store, and plain sockets on the other side: the transports of other loops make cycles.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from pravega_common.resources import Permission
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.tls import ServerTls
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from pravega_common.wire.append_block import AppendDecoder
from pravega_common.wire.framing import FrameParser
from segment_service.host.append_processor import AppendProcessor
from segment_service.host.connection import Connection
from segment_service.host.connection_load import ConnectionLoad
from segment_service.host.connection_reads import ConnectionReads
from segment_service.host.connection_requests import ConnectionRequests
from segment_service.host.frame_pump import FramePump
from segment_service.host.listener import WireServer
from segment_service.host.peer_watch import PeerWatch
from segment_service.host.reply_queue import ReplyQueue
from segment_service.host.transient_segments import TransientSegments
from segment_service.tables.table_extension import TableExtension
from tests.drills.fuzz.frames import FrameMaker
from tests.drills.fuzz.values import Target
from tests.support.certificates import Authority
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.security import tokens_of

SEGMENT = "scope/stream/0.#epoch.0"
EMPTY = "scope/stream/1.#epoch.0"
MISSING = "scope/stream/9.#epoch.0"
HELLO = codec.encode(c.Hello(17, 5))
NO_FRAME = b"\xff" * 8
"""Ends a connection."""
connections = 10
OF_A_CONNECTION = (
    Connection,
    AppendProcessor,
    AppendDecoder,
    ConnectionLoad,
    ConnectionReads,
    ConnectionRequests,
    FrameParser,
    FramePump,
    PeerWatch,
    ReplyQueue,
    TransientSegments,
)


def set_up(segment: str = SEGMENT, token: str = "", writer: int = 0) -> bytes:
    return codec.encode(c.SetupAppend(1, b"%016d" % writer, segment, token))


def append(number: int, writer: int = 0) -> bytes:
    return codec.encode(c.AppendBlockEnd(b"%016d" % writer, 3, b"abc", 1, number, number))


def conversations() -> dict[str, tuple[bytes, int]]:
    """What peers send before they end, and how many replies they wait for."""
    return {
        "nothing": (b"", 0),
        "Hello": (HELLO, 1),
        "half a frame": (HELLO + set_up()[:20], 1),
        "no frame at all": (b"\xff" * 64, 0),
        "appends": (HELLO + set_up() + append(1) + append(2), 4),
        "a refused writer and its append": (HELLO + set_up(MISSING) + append(1), 2),
        "a read that waits": (HELLO + codec.encode(c.ReadSegment(EMPTY, 0, 1_000, "", 9)), 1),
        "a request": (HELLO + codec.encode(c.GetStreamSegmentInfo(1, SEGMENT)), 2),
        "a refused request": (HELLO + codec.encode(c.GetStreamSegmentInfo(1, MISSING)), 2),
        "a transient segment": (HELLO + codec.encode(c.CreateTransientSegment(1, b"w" * 16, SEGMENT)), 2),
    }


class Peer:
    """Says something to a store, and ends; in a thread, so that it leaves no objects of the loop."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")

    def say(self, data: bytes, replies: int) -> None:
        self._socket.sendall(data)
        parser = FrameParser()
        while replies > 0:
            received = self._socket.recv(1 << 16)
            if not received:
                break
            replies -= len(parser.feed(received))

    def end(self) -> None:
        self._socket.close()


def set_up_writer(port: int, writer: int) -> Peer:
    peer = Peer(port, None)
    peer.say(HELLO + set_up(writer=writer), 2)
    return peer


async def talk(server: WireServer, context: ssl.SSLContext | None, data: bytes, replies: int) -> None:
    def work() -> None:
        peer = Peer(server.port, context)
        peer.say(data, replies)
        peer.end()

    await asyncio.to_thread(work)
    await eventually(lambda: server.connection_count == 0)


def alive() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, OF_A_CONNECTION)]


class Leftovers:
    """What lives of connections that ended while the collector did not run, without what an earlier test left."""

    def __init__(self) -> None:
        gc.collect()
        self._before = alive()

    def new(self) -> list[object]:
        return [one for one in alive() if not any(one is other for other in self._before)]

    async def all_freed(self) -> None:
        """Nothing of a connection lives, nor waits for the collector, which finds less than an object of each."""
        await eventually(lambda: not self.new())
        assert gc.collect() < connections


@contextlib.contextmanager
def without_collector() -> Iterator[Leftovers]:
    left = Leftovers()
    gc.disable()
    try:
        yield left
    finally:
        gc.enable()


def run(
    scenario: Callable[[WireServer, InMemorySegmentStore], Awaitable[None]], server: Callable[..., WireServer]
) -> None:
    async def main() -> None:
        store = InMemorySegmentStore()
        await store.create_segment(SEGMENT)
        await store.create_segment(EMPTY)
        made = server(store, InMemoryTableStore(store), store)
        await made.start()
        try:
            await scenario(made, store)
        finally:
            store.release()
            store.open_gate()
            await made.stop()

    uvloop.run(main())


@pytest.mark.parametrize("security", ["plain", "tls"])
@pytest.mark.parametrize("saying", conversations())
def test_a_closed_connection_leaves_nothing_for_the_collector(saying: str, security: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca") if security == "tls" else None
    server_tls = None if authority is None else ServerTls(authority.issue().section, SystemClock()).context
    client_tls = None if authority is None else ClientTls.from_file(authority.file).context

    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        data, replies = conversations()[saying]
        await talk(server, client_tls, data, replies)
        with without_collector() as left:
            for _ in range(connections):
                await talk(server, client_tls, data, replies)
            await left.all_freed()

    run(scenario, lambda *parts: WireServer(*parts, tls=server_tls))


@pytest.mark.parametrize("token", ["", "no-token", "a.b.c", "e30.e30.e30"])
def test_a_writer_with_a_bad_token_leaves_nothing_for_the_collector(token: str) -> None:
    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        with without_collector() as left:
            for _ in range(connections):
                await talk(server, None, HELLO + set_up(token=token), 2)
            await left.all_freed()

    run(scenario, lambda *parts: WireServer(*parts, tokens=tokens_of(), authenticates=True))


@pytest.mark.parametrize("user", ["mallory", ""])
def test_mutated_frames_leave_nothing_for_the_collector(user: str) -> None:
    """What the fuzzing drill sends: whatever is refused, and whichever way it ends, on a real container."""
    tokens = tokens_of()
    permitted = {"prn::/scope:scope/stream:stream": Permission.READ_UPDATE}
    known = {"scope/stream": tokens.sign(user, permitted)} if user else {}
    maker = FrameMaker("1", Target("scope", {"stream": (SEGMENT,)}, ("t",), "other", ("x",), ("y",), known))

    async def send(server: WireServer) -> None:
        data = HELLO + b"".join(maker.batch().frames) + NO_FRAME
        with contextlib.suppress(ConnectionError):  # Closed with bytes that nobody read.
            await talk(server, None, data, len(data))
        await eventually(lambda: server.connection_count == 0)

    async def main() -> None:
        kit = ContainerKit()
        container = await kit.open()
        await container.create_segment(SEGMENT)
        tables = TableExtension(container)
        server = WireServer(container, tables, kit.back_pressure, tokens=tokens, authenticates=True)
        await server.start()
        for _ in range(connections):  # What is made once, at the first use.
            await send(server)
        with without_collector() as left:
            for _ in range(4 * connections):
                await send(server)
            await left.all_freed()
        await container.stop()
        await server.stop()

    uvloop.run(main())


def test_a_handshake_that_fails_leaves_no_connection(tmp_path: Path) -> None:
    tls = ServerTls(Authority(tmp_path / "ca").issue().section, SystemClock()).context

    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        assert server.door is not None
        with without_collector() as left:
            for _ in range(connections):
                await talk(server, None, b"\x16\x03\x01\x02\x00" + b"\x00" * 600, 1)
            await eventually(lambda: server.door is not None and server.door.counts.total == 0)
            await left.all_freed()

    run(scenario, lambda *parts: WireServer(*parts, tls=tls))


def test_a_connection_with_appends_under_way_is_freed_when_they_end() -> None:
    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        with without_collector() as left:
            for number in range(connections):
                peer = await asyncio.to_thread(set_up_writer, server.port, number)
                store.hold()
                await asyncio.to_thread(peer.say, append(1, number), 0)
                await eventually(lambda: store.queued_operations == 1)
                peer.end()
                await eventually(lambda: server.connection_count == 0)
                assert server.budgets.in_flight.appends == 1
                store.release()
                await eventually(lambda: server.budgets.in_flight.appends == 0)
            await left.all_freed()

    run(scenario, WireServer)


def test_a_connection_that_back_pressure_leaves_unread_is_freed() -> None:
    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        with without_collector() as left:
            for number in range(connections):
                peer = await asyncio.to_thread(set_up_writer, server.port, number)
                store.close_gate()
                await asyncio.to_thread(peer.say, append(1, number), 0)
                await eventually(lambda: all(one.reading_is_paused for one in server._connections))
                peer.end()
                store.open_gate()
                await eventually(lambda: server.connection_count == 0)
            await left.all_freed()

    run(scenario, WireServer)


def test_a_connection_whose_peer_takes_no_replies_is_freed() -> None:
    """Its reads wait for room, one of them in line for the next reply."""
    reads = b"".join(codec.encode(c.ReadSegment(SEGMENT, 0, 1 << 20, "", number)) for number in range(30))

    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        await store.append(SEGMENT, [bytes(1 << 20)])
        with without_collector() as left:
            for _ in range(connections):
                peer = await asyncio.to_thread(Peer, server.port, None)
                await asyncio.to_thread(peer.say, HELLO + reads, 0)
                await eventually(lambda: 0 < server.budgets.reads < 30 and server.budgets.unsent.bytes > 1 << 20)
                peer.end()
                await eventually(lambda: server.connection_count == 0)
                assert server.budgets.unsent.bytes == 0
            await left.all_freed()

    run(scenario, WireServer)


def test_a_connection_that_ends_on_probation_is_freed() -> None:
    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        first = await asyncio.to_thread(Peer, server.port, None)
        await eventually(lambda: server.connection_count == 1)
        (served,) = server._connections
        with without_collector():
            for _ in range(connections):
                peer = await asyncio.to_thread(Peer, server.port, None)
                await asyncio.to_thread(peer.say, HELLO, 1)
                assert sum(one.on_probation is not None for one in server._connections) == 1
                peer.end()
                await eventually(lambda: server.connection_count == 1)
            await eventually(lambda: [one for one in alive() if isinstance(one, Connection)] == [served])
            assert gc.collect() < connections
        first.end()

    run(scenario, lambda *parts: WireServer(*parts, connections_max=1))


def test_a_set_up_that_ends_after_its_connection_waits_for_no_token() -> None:
    tokens = tokens_of()

    async def scenario(server: WireServer, store: InMemorySegmentStore) -> None:
        token = tokens.sign("alice", {"prn::/scope:scope/stream:stream": Permission.READ_UPDATE})
        release = asyncio.Event()
        get_attribute = store.get_attribute

        async def later(segment: str, attribute_id: object) -> int:
            await release.wait()
            return await get_attribute(segment, attribute_id)  # type: ignore[arg-type]

        store.get_attribute = later  # type: ignore[method-assign]
        with without_collector() as left:
            await talk(server, None, HELLO + set_up(token=token), 1)
            assert left.new()
            release.set()
            await eventually(lambda: not left.new())

    run(scenario, lambda *parts: WireServer(*parts, tokens=tokens, authenticates=True))
