"""Handshakes that do not end, or that are too many, over real sockets and on both event loops that services use."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import SystemClock
from pravega_common.services import tls_door
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.tls import ServerTls
from pravega_common.services.tls_door import TlsDoor
from tests.support.certificates import Authority
from tests.support.eventually import eventually

Scenario = Callable[[], Awaitable[None]]


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        transport.write(b"hello")
        transport.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    return asyncio.run if request.param == "asyncio" else uvloop.run


@contextlib.asynccontextmanager
async def opened(authority: Authority, counts: HostCounts | None = None) -> AsyncIterator[TlsDoor]:
    tls = ServerTls(authority.issue().section, SystemClock())
    door = TlsDoor("127.0.0.1", 0, tls.context, Greeting, backlog=128, counts=counts)
    await door.start()
    yield door
    await asyncio.wait_for(door.stop(), 10)
    assert door.failure is None and door.counts.total == 0


async def silent(port: int, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))


async def greeting(port: int, context: ssl.SSLContext) -> bytes:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        said = await reader.read()
        writer.close()
        return said


def test_handshakes_of_one_host_leave_room_for_others(run: Callable[[Any], None], authority: Authority) -> None:
    async def scenario() -> None:
        context = ClientTls.from_file(authority.file).context
        async with opened(authority, HostCounts("TLS handshakes", "are under way", 8, 5)) as door:
            many = [await silent(door.port, "127.0.0.2") for _ in range(20)]
            await eventually(lambda: door.counts.refused_total == 15)
            assert door.counts.total == 5
            for _ in range(10):  # a handshake that ended makes room
                assert await greeting(door.port, context) == b"hello"
            for _, writer in many:
                writer.close()
            await eventually(lambda: door.counts.total == 0)
            many = [await silent(door.port, "127.0.0.2")]
            await eventually(lambda: door.counts.total == 1)
        assert await many[0][0].read() == b""  # the end of the server ended it
        many[0][1].close()

    run(scenario())


def test_a_handshake_has_its_time_and_what_is_no_handshake_ends_at_once(
    run: Callable[[Any], None], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "handshake_time_max_s", 0.3)

    async def scenario() -> None:
        context = ClientTls.from_file(authority.file).context
        async with opened(authority) as door:
            reader, writer = await silent(door.port, "127.0.0.2")
            for said in (b"\0" * 16, b"GET / HTTP/1.1\r\n\r\n"):
                other_reader, other = await silent(door.port, "127.0.0.3")
                other.write(said)
                with contextlib.suppress(ConnectionResetError):
                    async with asyncio.timeout(20):
                        await other_reader.read()
                other.close()
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()
            await eventually(lambda: door.counts.total == 0)
            assert await greeting(door.port, context) == b"hello"

    run(scenario())
