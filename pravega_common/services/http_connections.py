"""Limits the connections of an HTTP port: how many, of one peer and of all, and how long each may take for a request.

At a limit the connection that has been without a request for longest makes room for a new one, so that nobody who keeps
connections open locks others out, or makes who asks whether the service lives believe that it hangs.

A thin protocol before that of aiohttp: it hands everything on. Only the first request of a connection is timed here;
aiohttp closes one that is idle, or stuck in a later request's head, after ``idle_time_max_s``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web

from pravega_common.invariants import check
from pravega_common.services.base import Service
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.http_busy import busy_reason
from pravega_common.services.http_log import http_server_log
from pravega_common.services.tls_door import TlsDoor

accept_backlog: Final = 100
head_time_max_s: Final = 10.0
"""Time from the connection to the end of the first request's head."""
body_time_max_s: Final = 30.0
"""Time for a body, which has at most a mebibyte."""
line_bytes_max_default: Final = 8_190
"""The first line of a request, which has its address, as most servers take it."""
idle_time_max_s: Final = 30.0
"""Time without a request after which a connection is closed."""
_BUSY: Final = (
    f"HTTP/1.1 503 {busy_reason}\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n".encode()
)


class ConnectionLimits:
    """Counts the connections of one port by the host of the peer."""

    def __init__(self, connections_max: int, per_peer_max: int) -> None:
        self._counts = HostCounts("connections", "are open", connections_max, per_peer_max)
        self._by_protocol: dict[Any, TimedProtocol] = {}
        """The connections that are served, by the protocol of aiohttp."""
        self._idle: OrderedDict[TimedProtocol, None] = OrderedDict()
        """Those without a request whose head was read, longest first."""

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
        connection = self._by_protocol.get(request.protocol)
        if connection is None:
            return await handler(request)
        connection.head_is_read()
        self._idle.pop(connection, None)
        try:
            return await handler(request)
        finally:
            if request.protocol in self._by_protocol:
                self._idle[connection] = None

    def enter(self, peer: str) -> bool:
        """Whether one more connection of a peer is taken; then it is counted."""
        if self._counts.refusal(peer):
            longest = self._longest_idle(peer)
            if longest is not None:
                longest.make_room()
        return not self._counts.enter(peer)

    def _longest_idle(self, peer: str) -> TimedProtocol | None:
        """The connection that makes room for one more of this peer; looks at no more than there may be."""
        own_only = self._counts.is_at_limit(peer)
        return next((one for one in self._idle if not own_only or one.peer == peer), None)

    def serve(self, protocol: Any, connection: TimedProtocol) -> None:
        """A connection that was let in waits for its first request."""
        self._by_protocol[protocol] = connection
        self._idle[connection] = None

    def leave(self, protocol: Any, connection: TimedProtocol) -> None:
        """Forget a connection; nothing if it was forgotten."""
        if self._by_protocol.pop(protocol, None) is not None:
            self._idle.pop(connection, None)
            self._counts.leave(connection.peer)


class TimedProtocol(asyncio.Protocol):
    """One connection: refused above the limits, cut if its first request does not come; else aiohttp's."""

    def __init__(self, limits: ConnectionLimits, make: Callable[[], asyncio.Protocol]) -> None:
        self._limits = limits
        self._make = make
        self._served: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        stream = cast(asyncio.Transport, transport)
        if not self._limits.enter(self.peer):
            stream.write(_BUSY)
            stream.close()
            return
        self._served, self._transport = self._make(), stream
        self._limits.serve(self._served, self)
        self._timer = asyncio.get_running_loop().call_later(head_time_max_s, stream.abort)
        self._served.connection_made(transport)

    def head_is_read(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def make_room(self) -> None:
        """End this connection, which is not counted any more, for another one."""
        self._limits.leave(self._served, self)
        if self._transport is not None:
            self._transport.abort()

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
            self._limits.leave(self._served, self)
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
        line_bytes_max: int = line_bytes_max_default,
    ) -> None:
        """``application`` makes it at the start. ``stop_grace_s``: time for requests under way at the end."""
        super().__init__("http-door")
        self.port = port
        self._host = host
        self._limits = limits
        self._application = application
        self._tls = tls
        self._stop_grace_s = stop_grace_s
        self._line_bytes_max = line_bytes_max
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
            max_line_size=self._line_bytes_max,
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
