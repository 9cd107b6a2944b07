"""Connections of an HTTP port at its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, TCPConnector, web

from pravega_common.services.http_busy import busy_reason
from pravega_common.services.http_connections import ConnectionLimits, HttpDoor
from tests.support.eventually import eventually

connections_max = 3


class Port:
    """A port that answers ``/quick`` at once and ``/slow`` when it is let."""

    def __init__(self, per_peer_max: int) -> None:
        self.limits = ConnectionLimits(connections_max, per_peer_max)
        self.go_on = asyncio.Event()
        self.under_way = 0
        self.door = HttpDoor("127.0.0.1", 0, self.limits, self._application, tls=None, stop_grace_s=0.1)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self.limits.began])
        application.add_routes([web.get("/quick", self._quick), web.get("/slow", self._slow)])
        return application

    async def _quick(self, _request: web.Request) -> web.Response:
        return web.Response(text="quick")

    async def _slow(self, _request: web.Request) -> web.Response:
        self.under_way += 1
        await self.go_on.wait()
        return web.Response(text="slow")


@pytest.fixture(params=[connections_max, 99], ids=["of a peer", "of all"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    made = Port(request.param)
    await made.door.start()
    yield made
    await made.door.stop()


@pytest.fixture
async def session(port: Port) -> AsyncIterator[ClientSession]:
    """Each request has a connection of its own, which stays open."""
    async with ClientSession(f"http://127.0.0.1:{port.door.port}", connector=TCPConnector(limit=0)) as made:
        yield made


async def text_of(session: ClientSession, path: str) -> str:
    async with session.get(path) as answer:
        return await answer.text() if answer.status == 200 else str(answer.reason)


async def test_requests_under_way_keep_their_connections(port: Port, session: ClientSession) -> None:
    slow = [asyncio.create_task(text_of(session, "/slow")) for _ in range(connections_max)]
    await eventually(lambda: port.under_way == connections_max, "all are under way")
    assert await text_of(session, "/quick") == busy_reason
    assert port.limits.refused_total == 1
    port.go_on.set()
    assert await asyncio.gather(*slow) == ["slow"] * connections_max


async def test_the_connection_that_was_idle_for_longest_makes_room(port: Port, session: ClientSession) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port.door.port) for _ in range(connections_max)]
    await eventually(lambda: port.limits.open_count == connections_max, "all are counted")
    assert await text_of(session, "/quick") == "quick"
    assert await text_of(session, "/quick") == "quick"  # on the connection that it has
    assert [await is_ended(reader) for reader, _ in silent] == [True, False, False]
    assert (port.limits.open_count, port.limits.refused_total) == (connections_max, 0)
    for _, writer in silent:
        writer.close()
    await eventually(lambda: port.limits.open_count == 1, "what was counted leaves once")


async def test_after_its_request_a_connection_may_make_room_again(port: Port, session: ClientSession) -> None:
    slow = [asyncio.create_task(text_of(session, "/slow")) for _ in range(connections_max)]
    await eventually(lambda: port.under_way == connections_max, "all are under way")
    port.go_on.set()
    await asyncio.gather(*slow)
    _, writer = await asyncio.open_connection("127.0.0.1", port.door.port)
    async with ClientSession(f"http://127.0.0.1:{port.door.port}") as other:
        assert await text_of(other, "/quick") == "quick"
    assert port.limits.refused_total == 0
    writer.close()


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the port has ended the connection; it sends nothing by itself."""
    try:
        return await asyncio.wait_for(reader.read(1), 0.2) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
