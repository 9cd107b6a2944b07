"""Answers whose items stop coming in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from pydantic import TypeAdapter

from controller_service.api.rest.errors import map_errors
from controller_service.api.rest.operation import _serve_items
from pravega_common.errors import Unavailable


async def _items() -> AsyncIterator[int]:
    yield 1
    raise Unavailable("a store went away")


async def test_an_answer_that_fails_in_the_middle_has_no_second_head() -> None:
    """A client of lenient code would take it for the end of the body, and the rest for the next answer."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _serve_items(request, _items(), TypeAdapter(int))

    application = web.Application(middlewares=[map_errors])
    application.router.add_get("/", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    said = b""
    async with asyncio.timeout(10):
        try:
            said = await reader.readuntil(b"[1")
            said += await reader.read()
        except ConnectionResetError:
            pass
    writer.close()
    await runner.cleanup()
    assert said.startswith(b"HTTP/1.1 200") and said.count(b"HTTP/1.1") == 1
    assert not said.endswith(b"0\r\n\r\n")
