"""Limits the connections of an HTTP port: how many, of one peer and of all, and how long each may take for a request.

A thin protocol before that of aiohttp: it hands everything on. Only the first request of a connection is timed here;
aiohttp closes one that is idle, or stuck in a later request's head, after ``idle_time_max_s``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web

from pravega_common.invariants import check
from pravega_common.services.base import Service
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.http_log import http_server_log
from pravega_common.services.tls_door import TlsDoor

accept_backlog: Final = 100
head_time_max_s: Final = 10.0
"""Time from the connection to the end of the first request's head."""
body_time_max_s: Final = 30.0
"""Time for a body, which has at most a mebibyte."""
idle_time_max_s: Final = 30.0
"""Time without a request after which a connection is closed."""
_BUSY: Final = (
    b"HTTP/1.1 503 the limit of connections is reached, try again later\r\n"
    b"Connection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
)


class ConnectionLimits:
    """Counts the connections of one port by the host of the peer."""

    def __init__(self, connections_max: int, per_peer_max: int) -> None:
        self._counts = HostCounts("connections", "are open", connections_max, per_peer_max)
        self._waiting: dict[Any, TimedProtocol] = {}
        """Connections whose first request has not come, by the protocol of aiohttp."""

    @property
    def refused_total(self) -> int:
        return self._counts.refused_total

    @property
    def open_count(self) -> int:
        return self._counts.total

    def protocol(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        return TimedProtocol(self, make)

    @web.middleware
    async def began(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Note that the head of a request was read: the outermost middleware of what the port serves."""
        waiting = self._waiting.pop(request.protocol, None)
        if waiting is not None:
            waiting.head_is_read()
        return await handler(request)

    def enter(self, peer: str) -> bool:
        """Whether one more connection of a peer is taken; then it is counted."""
        return not self._counts.enter(peer)

    def leave(self, peer: str) -> None:
        self._counts.leave(peer)

    def wait_for_head(self, protocol: Any, connection: TimedProtocol) -> None:
        self._waiting[protocol] = connection

    def forget(self, protocol: Any) -> None:
        self._waiting.pop(protocol, None)


class TimedProtocol(asyncio.Protocol):
    """One connection: refused above the limits, cut if its first request does not come; else aiohttp's."""

    def __init__(self, limits: ConnectionLimits, make: Callable[[], asyncio.Protocol]) -> None:
        self._limits = limits
        self._make = make
        self._served: asyncio.Protocol | None = None
        self._peer = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else ""
        stream = cast(asyncio.Transport, transport)
        if not self._limits.enter(self._peer):
            stream.write(_BUSY)
            stream.close()
            return
        self._served = self._make()
        self._limits.wait_for_head(self._served, self)
        self._timer = asyncio.get_running_loop().call_later(head_time_max_s, stream.abort)
        self._served.connection_made(transport)

    def head_is_read(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._served is not None:
            self._served.data_received(data)

    def eof_received(self) -> bool | None:
        return self._served.eof_received() if self._served is not None else None

    def pause_writing(self) -> None:
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._served is not None:
            self._served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_is_read()
        if self._served is not None:
            self._limits.forget(self._served)
            self._limits.leave(self._peer)
            self._served.connection_lost(exc)


class HttpDoor(Service):
    """Serves an application of aiohttp, whose outermost middleware is ``limits.began``, on one address.

    ``port`` 0 takes a free one: read ``port`` after ``start``, which raises ``OSError`` if it cannot listen.
    """

    def __init__(
        self,
        host: str,
        port: int,
        limits: ConnectionLimits,
        application: Callable[[], web.Application],
        *,
        tls: ssl.SSLContext | None,
        stop_grace_s: float,
    ) -> None:
        """``application`` makes it at the start. ``stop_grace_s``: time for requests under way at the end."""
        super().__init__("http-door")
        self.port = port
        self._host = host
        self._limits = limits
        self._application = application
        self._tls = tls
        self._stop_grace_s = stop_grace_s
        self._runner: web.AppRunner | None = None
        self._socket: asyncio.Server | None = None
        self._tls_door: TlsDoor | None = None

    async def on_start(self) -> None:
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=http_server_log(),
            shutdown_timeout=self._stop_grace_s,
            keepalive_timeout=idle_time_max_s,
        )
        await self._runner.setup()
        serve = self._runner.server
        check(serve is not None, "a runner that is set up has a server")
        await self._open(lambda: self._limits.protocol(cast(Callable[[], asyncio.Protocol], serve)))

    async def _open(self, make: Callable[[], asyncio.Protocol]) -> None:
        if self._tls is None:
            self._socket = await asyncio.get_running_loop().create_server(make, self._host, self.port)
            self.port = int(self._socket.sockets[0].getsockname()[1])
            return
        self._tls_door = TlsDoor(self._host, self.port, self._tls, make, backlog=accept_backlog)
        self.own(self._tls_door)
        await self._tls_door.start()
        self.port = self._tls_door.port

    async def on_stop(self) -> None:
        if self._tls_door is not None:
            await self._tls_door.stop()
        if self._socket is not None:
            self._socket.close()
        if self._runner is not None:
            await self._runner.cleanup()
