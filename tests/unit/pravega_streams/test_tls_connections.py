"""Talks to a store over TLS: both kinds of connection, large frames, slow peers, and handshakes that fail."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import AuthenticationFailed, ConfigurationError, Unavailable, UnknownOutcome
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.tls import ServerTls
from pravega_common.services.tls_door import handshakes_per_host_max
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import WireConnection
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.requests import MakeCommand
from pravega_streams.connection.tls_socket import TlsSocket, record_bytes
from segment_service.host.listener import WireServer
from tests.support.certificates import Authority, CertificateFiles
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
transfer_bytes = 3_000_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


async def started(segments: InMemorySegmentStore, files: CertificateFiles) -> WireServer:
    tls = ServerTls(files.section, SystemClock())
    made = WireServer(segments, InMemoryTableStore(segments), segments, tls=tls.context)
    await made.start()
    return made


@pytest.fixture
async def tls_server(segments: InMemorySegmentStore, authority: Authority) -> AsyncIterator[WireServer]:
    made = await started(segments, authority.issue())
    yield made
    await made.stop()


@pytest.fixture
def tls_endpoint(tls_server: WireServer, authority: Authority) -> Endpoint:
    return Endpoint("127.0.0.1", tls_server.port, ClientTls.from_file(authority.file))


def read_at(offset: int) -> MakeCommand:
    return lambda rid: c.ReadSegment(SEGMENT, offset, 1 << 20, "", rid)


async def test_the_connection_of_an_event_loop_appends_and_reads(tls_endpoint: Endpoint) -> None:
    connection = await WireConnection.open(tls_endpoint)
    data = os.urandom(transfer_bytes)
    assert isinstance(await connection.call(lambda rid: c.CreateSegment(rid, SEGMENT, 0, 0)), c.SegmentCreated)
    assert isinstance(await connection.call(lambda rid: c.SetupAppend(rid, WRITER, SEGMENT)), c.AppendSetup)
    appended = await connection.call(lambda rid: c.AppendBlockEnd(WRITER, len(data), data, 1, 1, rid))
    assert isinstance(appended, c.DataAppended)
    found = b""
    while len(found) < len(data):
        reply = await connection.call(read_at(len(found)))
        assert isinstance(reply, c.SegmentRead)
        found += bytes(reply.data)
    assert found == data
    connection.close()


async def test_the_blocking_connection_appends_and_reads(tls_endpoint: Endpoint) -> None:
    data = os.urandom(transfer_bytes)

    def use() -> bytes:
        connection = WireSocket(tls_endpoint)
        connection.call(lambda rid: c.CreateSegment(rid, SEGMENT, 0, 0))
        connection.call(lambda rid: c.SetupAppend(rid, WRITER, SEGMENT))
        reply = connection.call(lambda rid: c.AppendBlockEnd(WRITER, len(data), memoryview(data), 1, 1, rid))
        assert isinstance(reply, c.DataAppended)
        found = b""
        while len(found) < len(data):
            part = connection.call(read_at(len(found)))
            assert isinstance(part, c.SegmentRead)
            found += bytes(part.data)
        connection.close()
        assert not connection.is_open
        return found

    assert await asyncio.to_thread(use) == data


async def test_a_blocking_connection_ends_under_the_thread_that_waits_on_it(
    tls_endpoint: Endpoint, segments: InMemorySegmentStore
) -> None:
    connection = await asyncio.to_thread(WireSocket, tls_endpoint)
    segments.hold()
    waiting = asyncio.ensure_future(asyncio.to_thread(connection.call, lambda rid: c.CreateSegment(rid, SEGMENT, 0, 0)))
    await eventually(lambda: segments.queued_operations > 0, "the request")
    for _ in range(2):
        connection.hang_up()
    with pytest.raises(UnknownOutcome):
        await asyncio.wait_for(waiting, 5)
    assert not connection.is_open
    connection.hang_up()
    segments.release()


async def test_a_failed_handshake_is_no_connection_and_holds_up_no_stop(
    tls_server: WireServer, segments: InMemorySegmentStore
) -> None:
    for said in (b"\0" * 16, b"GET / HTTP/1.1\r\n\r\n", b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", tls_server.port)
        writer.write(said)
        writer.write_eof()
        await reader.read()
        writer.close()
    silent = await asyncio.open_connection("127.0.0.1", tls_server.port)
    assert tls_server.connection_count == 0
    await asyncio.wait_for(tls_server.stop(), 10)
    assert tls_server.failure is None
    silent[1].close()


async def test_handshakes_of_one_host_keep_no_other_out(tls_server: WireServer, tls_endpoint: Endpoint) -> None:
    assert tls_server.door is not None
    counts = tls_server.door.counts
    silent = [
        await asyncio.open_connection("127.0.0.1", tls_server.port, local_addr=("127.0.0.2", 0))
        for _ in range(handshakes_per_host_max + 40)
    ]
    await eventually(lambda: counts.refused_total == 40)
    assert counts.total == handshakes_per_host_max and tls_server.connection_count == 0
    connection = await WireConnection.open(tls_endpoint)
    assert isinstance(await connection.call(lambda rid: c.CreateSegment(rid, SEGMENT, 0, 0)), c.SegmentCreated)
    connection.close()
    for _, writer in silent:
        writer.close()
    await eventually(lambda: counts.total == 0)


async def refusals(endpoint: Endpoint) -> list[str]:
    """What both kinds of connection say."""
    with pytest.raises((AuthenticationFailed, ConfigurationError)) as of_loop:
        await WireConnection.open(endpoint)
    with pytest.raises((AuthenticationFailed, ConfigurationError)) as of_socket:
        await asyncio.to_thread(WireSocket, endpoint)
    return [str(of_loop.value), str(of_socket.value)]


async def test_a_certificate_of_another_authority_is_refused(tls_server: WireServer, tmp_path: Path) -> None:
    other = ClientTls.from_file(Authority(tmp_path / "other", "another authority").file)
    for said in await refusals(Endpoint("127.0.0.1", tls_server.port, other)):
        assert "certificate that is not trusted" in said and "PRAVEGA_CA_FILE" in said
    for said in await refusals(Endpoint("127.0.0.1", tls_server.port, ClientTls())):
        assert "PRAVEGA_CA_FILE" in said
    await eventually(lambda: tls_server.connection_count == 0)


async def test_a_certificate_that_ended_is_refused(segments: InMemorySegmentStore, authority: Authority) -> None:
    server = await started(segments, authority.issue("ended", days=-1))
    for said in await refusals(Endpoint("127.0.0.1", server.port, ClientTls.from_file(authority.file))):
        assert "expired" in said and "renew it" in said
    await server.stop()


async def test_a_certificate_of_another_host_is_refused_unless_names_do_not_count(
    segments: InMemorySegmentStore, authority: Authority
) -> None:
    server = await started(segments, authority.issue("elsewhere", hosts=("elsewhere.example",)))
    for said in await refusals(Endpoint("127.0.0.1", server.port, ClientTls.from_file(authority.file))):
        assert "127.0.0.1" in said and "connect by a name that it has" in said
    trust = ClientTls.from_file(authority.file, verify_host=False)
    connection = await WireConnection.open(Endpoint("127.0.0.1", server.port, trust))
    assert await connection.knows(0) is False
    connection.close()
    await server.stop()


async def test_a_store_without_tls_is_refused_by_a_client_with(endpoint: Endpoint, authority: Authority) -> None:
    for said in await refusals(Endpoint(endpoint.host, endpoint.port, ClientTls.from_file(authority.file))):
        assert "does not speak TLS" in said and "tcp://host:port" in said


async def test_a_store_with_tls_says_so_to_a_client_without(tls_server: WireServer) -> None:
    def use() -> None:
        connection = WireSocket(Endpoint("127.0.0.1", tls_server.port))
        connection.peer_version()

    with pytest.raises(ConfigurationError, match=r"speaks TLS: use tls://host:port"):
        await asyncio.to_thread(use)


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(ConfigurationError, match=r"ca_file .*No such file"):
        ClientTls.from_file(file)
    file.write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"ca_file .*PEM form"):
        ClientTls.from_file(file)


@pytest.fixture
def pair(authority: Authority) -> tuple[TlsSocket, ssl.SSLSocket]:
    """A client's socket, and the server's."""
    tls = ServerTls(authority.issue().section, SystemClock())
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[ssl.SSLSocket] = []

    def accept() -> None:
        accepted.append(tls.context.wrap_socket(listener.accept()[0], server_side=True))

    thread = threading.Thread(target=accept)
    thread.start()
    plain = socket.create_connection(listener.getsockname(), timeout=10)
    made = TlsSocket(plain, "127.0.0.1", ClientTls.from_file(authority.file))
    thread.join(10)
    listener.close()
    return made, accepted[0]


def test_one_thread_sends_while_another_receives(pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    sent, sent_back = os.urandom(transfer_bytes), os.urandom(transfer_bytes)
    received, received_back = bytearray(), bytearray()

    def send() -> None:
        left = memoryview(sent)
        while left:
            left = left[client.sendmsg([left[:100], left[100:70_000], left[70_000:]]) :]

    def receive() -> None:
        buffer = memoryview(bytearray(100_000))
        while len(received_back) < transfer_bytes:
            received_back.extend(buffer[: client.recv_into(buffer)])

    def take() -> None:
        while len(received) < transfer_bytes:
            received.extend(server.recv(100_000))

    threads = [threading.Thread(target=work) for work in (send, receive, take)]
    for thread in threads:
        thread.start()
    server.sendall(sent_back)
    for thread in threads:
        thread.join(60)
    assert received == sent and received_back == sent_back
    client.close()
    server.close()


def test_small_buffers_leave_as_one_record(pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    parts = [memoryview(bytes([number]) * 1_000) for number in range(40)]
    assert client.sendmsg(parts) == record_bytes
    assert server.recv(100_000) == b"".join(parts)[:record_bytes]
    client.close()
    server.close()


def test_a_silent_peer_costs_the_timeout(pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv_into(memoryview(bytearray(10)))
    # Nothing is lost by it.
    server.sendall(b"late")
    client.settimeout(10)
    buffer = memoryview(bytearray(10))
    assert bytes(buffer[: client.recv_into(buffer)]) == b"late"
    server.close()
    assert client.recv_into(buffer) == 0
    client.close()


def test_nobody_listening_is_no_matter_of_tls(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable):
        WireSocket(Endpoint("127.0.0.1", port, ClientTls.from_file(authority.file)))
