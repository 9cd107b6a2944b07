"""Sends the items of live operations as server-sent events, to a bounded number of listeners.

A listener that does not take an event in time is cut, and each is ended after a while: browsers come back by
themselves. All are ended when the server stops, which would else wait for them, and one whose permission is taken away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from aiohttp import web

from controller_service.api.rest.errors import status_line_text
from pravega_common.errors import PravegaError, Throttled

EVENTS_TYPE: Final = "text/event-stream"
listeners_max: Final = 64
listening_time_max_s: Final = 600.0
send_time_max_s: Final = 10.0
"""For one event, to a listener that does not read."""
STILL_PERMITTED: Final = web.RequestKey[Callable[[web.Request], Awaitable[object]]]("still_permitted")
"""Where the guard leaves the question whether the listener may still listen; ``PravegaError`` if not."""


class LiveAnswers:
    """The live answers of one server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, request: web.Request, items: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Send events until the listener leaves, the items end or fail, or the time is over.

        ``Throttled`` while there are ``listeners_max``. An error of the first item is raised; a later one is an event
        ``failed`` with its text, and the end.
        """
        if len(self._tasks) >= listeners_max:
            await items.aclose()
            raise Throttled(f"{listeners_max} clients listen already, and no more may")
        response = web.StreamResponse(
            headers={"Content-Type": f"{EVENTS_TYPE}; charset=utf-8", "Cache-Control": "no-store"}
        )
        # A task of its own: ``end`` ends this answer, not the connection's handler.
        task = asyncio.ensure_future(_send(request, response, items))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._tasks.discard(task)
            task.cancel()
        if not task.cancelled():
            task.result()
        return response

    async def end(self, _application: web.Application) -> None:
        """End all answers."""
        for task in self._tasks:
            task.cancel()


async def _send(request: web.Request, response: web.StreamResponse, items: AsyncGenerator[bytes, None]) -> None:
    async with contextlib.aclosing(items):
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(listening_time_max_s):
                await _send_items(request, response, items)


async def _send_items(request: web.Request, response: web.StreamResponse, items: AsyncGenerator[bytes, None]) -> None:
    still_permitted = request.get(STILL_PERMITTED)
    try:
        async for item in items:
            if not response.prepared:
                await response.prepare(request)
            elif still_permitted is not None:
                await still_permitted(request)
            await _write(response, b"data: " + item + b"\n\n")
    except PravegaError as error:
        if not response.prepared:
            raise
        await _write(response, b"event: failed\ndata: " + status_line_text(str(error)).encode() + b"\n\n")


async def _write(response: web.StreamResponse, event: bytes) -> None:
    async with asyncio.timeout(send_time_max_s):
        await response.write(event)


LIVE_ANSWERS: Final = web.AppKey("live-answers", LiveAnswers)
