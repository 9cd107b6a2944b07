"""Accepts connections that begin with a TLS handshake, and bounds the handshakes under way.

A server of asyncio begins a handshake with everybody who connects, and knows a peer only after it: one that connects
and says nothing holds its memory, and one that begins handshakes without end the processor, unseen by every limit on
connections.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

from pravega_common.services.base import Service
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.tls import handshake_time_max_s

handshakes_max: Final = 1_024
"""Handshakes under way; one takes about 50 KiB."""
handshakes_per_host_max: Final = 256
accepts_per_turn_max: Final = 16
"""Connections that are accepted before others have their turn."""
full_pause_s: Final = 0.2
"""Pause after an accept for which the process or the system had no room."""
_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def handshake_counts() -> HostCounts:
    return HostCounts("TLS handshakes", "are under way", handshakes_max, handshakes_per_host_max)


class TlsDoor(Service):
    """Listens on one address. ``make`` makes the protocol of a connection once its handshake has succeeded.

    A connection above a limit is closed without a word, since its client would understand no answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        backlog: int,
        counts: HostCounts | None = None,
    ) -> None:
        """``port`` 0 takes a free one: read ``port`` after ``start``, which raises ``OSError`` if it cannot listen."""
        super().__init__("tls-door")
        self.host = host
        self.port = port
        self.counts = counts or handshake_counts()
        self._context = context
        self._make = make
        self._backlog = backlog
        self._listeners: list[socket.socket] = []

    async def on_start(self) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address[:2]) for family, *_, address in found):
            listener = socket.create_server(address, family=family, backlog=self._backlog)
            listener.setblocking(False)
            self._listeners.append(listener)
        self.port = int(self._listeners[0].getsockname()[1])
        for listener in self._listeners:
            self.spawn(self._accept(listener), "accept")

    async def on_stop(self) -> None:
        await self._cancel_tasks()
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                stream, peer = await loop.sock_accept(listener)
            except OSError as error:
                # Others are connections that ended before they were accepted.
                await asyncio.sleep(full_pause_s if error.errno in _FULL else 0)
                continue
            host = str(peer[0])
            if self.counts.enter(host):
                stream.close()
            else:
                self.spawn(self._shake_hands(stream, host), "handshake")
            accepted += 1
            if accepted % accepts_per_turn_max == 0:
                await asyncio.sleep(0)

    async def _shake_hands(self, stream: socket.socket, host: str) -> None:
        """Hand the connection over, unless its handshake fails or takes too long."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, stream, ssl=self._context, ssl_handshake_timeout=handshake_time_max_s
            )
        except Exception as error:
            # Nothing that a peer sends, or does not send, ends more than its own connection.
            self.log.debug("handshake failed", peer=host, error=repr(error))
        finally:
            self.counts.leave(host)
