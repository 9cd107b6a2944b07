"""Peers that keep connections to a store's status page and send nothing, or half of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pravega_common.services import http_connections
from segment_service.health import status_page
from tests.support.eventually import eventually
from tests.unit.segment_service.health.test_status_page import Page

answer_time_max_s = 20.0
per_host_max = 8


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    monkeypatch.setattr(status_page, "connections_per_host_max", per_host_max)
    page = Page()
    await page.server.start()
    yield page
    await page.server.stop()


async def connect(page: Page) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", page.server.port)


async def test_a_head_that_does_not_end_costs_its_connection(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that dribbles: the time is that of the whole head."""
    monkeypatch.setattr(http_connections, "head_time_max_s", 0.3)
    for sent in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"GET /m"):
        reader, writer = await connect(page)
        writer.write(sent)
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(answer_time_max_s):
            while not ended.done():
                if sent:
                    writer.write(b"x")
                await asyncio.wait({ended}, timeout=0.05)
        assert ended.exception() is not None or ended.result() == b"", sent
        writer.close()
    await eventually(lambda: not page.server.limits.open_count, "no connection is counted any more")


async def test_who_keeps_connections_open_locks_nobody_out(page: Page) -> None:
    """The supervisor that asks whether the store lives comes from the same host, and kills one that does not say."""
    opened = [await connect(page) for _ in range(per_host_max + 2)]
    limits = page.server.limits
    await eventually(lambda: limits.open_count == per_host_max, "as many as there may be are counted")
    assert await ended(opened[0]) and await ended(opened[1])
    for place in range(2 * per_host_max):
        assert (await page.get("/health/live"))[0] == 200, place
    assert limits.refused_total == 0 and limits.open_count <= per_host_max
    for _, writer in opened:
        writer.close()


async def ended(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    """Whether the page ends a connection, within the time of an answer."""
    async with asyncio.timeout(answer_time_max_s):
        try:
            return await connection[0].read() == b""
        except ConnectionResetError:
            return True


async def test_who_monitors_a_store_keeps_its_connection(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "head_time_max_s", 0.05)
    waited = asyncio.Event()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{page.server.port}") as session:
        for _ in range(3):
            async with session.get("/metrics") as answer:
                assert answer.status == 200
            asyncio.get_running_loop().call_later(0.1, waited.set)
            await waited.wait()
            waited.clear()
        assert page.server.limits.open_count == 1
