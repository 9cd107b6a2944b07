"""Connects to a segment store with asyncio: many requests outstanding, answered by request id."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from pravega_common.errors import InvalidArgument, PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime.client_tls import explained
from pravega_common.wire import commands as c
from pravega_common.wire.codec import decode, encode, encode_parts
from pravega_common.wire.framing import FrameParser
from pravega_common.wire.versions import EXTENSIONS, OLDEST_COMPATIBLE_VERSION, WIRE_VERSION, is_compatible
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.replies import answered_by
from pravega_streams.connection.requests import MakeCommand, connect_time_max_s, first_request_id

requests_outstanding_max: Final = 4_096


class WireConnection(asyncio.BufferedProtocol):
    """One socket. A lost connection ends every outstanding call with ``UnknownOutcome``: the store may have acted."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.is_open = False
        self._parser = FrameParser()
        self._request_ids = itertools.count(first_request_id)
        self._waiting: dict[int, asyncio.Future[c.Command]] = {}
        self._reads: dict[int, c.Command] = {}
        """Those of the waiting requests that are reads."""
        self._transport: asyncio.Transport | None = None
        self._heard_s = 0.0
        self._greeting: asyncio.Future[c.Hello] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, endpoint: Endpoint) -> WireConnection:
        loop = asyncio.get_running_loop()
        connection = cls(endpoint)
        try:
            async with asyncio.timeout(connect_time_max_s):
                await loop.create_connection(lambda: connection, endpoint.host, endpoint.port, **_tls_of(endpoint))
        except (OSError, TimeoutError) as error:
            refusal = explained(error, f"the segment store at {endpoint}")
            if refusal is not None:
                raise refusal from error
            raise Unavailable(
                f"no connection to the segment store at {endpoint}: {_reason(error, endpoint)}"
            ) from error
        connection._write([encode(c.Hello(WIRE_VERSION, OLDEST_COMPATIBLE_VERSION, EXTENSIONS))])
        return connection

    async def call(self, make: MakeCommand) -> c.Command:
        """Send one command and wait for the reply with its request id, also if that is a failure reply."""
        if not self.is_open:
            raise Unavailable(f"the connection to {self.endpoint} is closed")
        if len(self._waiting) >= requests_outstanding_max:
            raise Unavailable(f"{requests_outstanding_max} requests are outstanding at {self.endpoint}")
        request_id = next(self._request_ids)
        request = make(request_id)
        parts = encode_parts(request)
        reply: asyncio.Future[c.Command] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = reply
        if isinstance(request, c.ReadSegment):
            self._reads[request_id] = request
        try:
            self._write(parts)
            return await reply
        finally:
            self._waiting.pop(request_id, None)
            self._reads.pop(request_id, None)

    async def knows(self, extension: int) -> bool:
        """Whether the store knows an extension of the protocol (``wire/versions.py``); waits for its Hello."""
        hello = await asyncio.shield(self._greeting)
        return bool(hello.extensions & extension)

    @property
    def silent_s(self) -> float:
        """Seconds since something came."""
        return asyncio.get_running_loop().time() - self._heard_s

    def close(self, reason: str = "closed by this side") -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _write(self, parts: list[bytes | memoryview]) -> None:
        if self._transport is None:
            raise Unavailable(f"the connection to {self.endpoint} is closed")
        self._transport.writelines(parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream transport by how it was made; uvloop's does not derive from asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._heard_s = asyncio.get_running_loop().time()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._parser.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        try:
            for type_code, payload in self._parser.buffer_updated(nbytes):
                self._received(decode(type_code, payload))
        except PravegaError as error:
            self.close(str(error))
            return
        if self._parser.failure is not None:
            self.close(str(self._parser.failure))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc}")

    def _received(self, reply: c.Command) -> None:
        if isinstance(reply, c.Hello):
            if not is_compatible(reply.high_version, reply.low_version):
                self.close(f"wire versions {reply.low_version}..{reply.high_version} are not ours")
            elif not self._greeting.done():
                self._greeting.set_result(reply)
            return
        if isinstance(reply, c.ErrorMessage) and not (reply.request_id or reply.segment):
            self.close(reply.message)
            return
        request_id = getattr(reply, "request_id", -1)
        waiter = self._waiting.get(request_id)
        if waiter is None:
            waiter = self._waiting.get(answered_by(reply, self._reads) or request_id)
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _end(self, reason: str) -> None:
        self.is_open = False
        self._transport = None
        if not self._greeting.done():
            self._greeting.set_exception(Unavailable(f"segment store {self.endpoint}: {reason}"))
            self._greeting.exception()  # marks it retrieved: perhaps nobody asks
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(UnknownOutcome(f"segment store {self.endpoint}: {reason}"))


def _reason(error: Exception, endpoint: Endpoint) -> str:
    text = str(error) or type(error).__name__
    return text if endpoint.tls is None else f"{text}, over TLS"


def _tls_of(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.tls is None:
        return {}
    return {"ssl": endpoint.tls.context, "server_hostname": endpoint.host}


class ConnectionPool:
    """One connection per endpoint, opened when first needed and again after it was lost. Of endpoints that are gone,
    as a store may come back at another address each time, nothing is kept once another connection is opened."""

    def __init__(self) -> None:
        self._connections: dict[Endpoint, WireConnection] = {}
        self._locks: WeakValueDictionary[Endpoint, asyncio.Lock] = WeakValueDictionary()
        self.is_closed = False

    async def get(self, endpoint: Endpoint) -> WireConnection:
        """``InvalidArgument`` once the pool is closed."""
        self.check_open()
        connection = self._connections.get(endpoint)
        if connection is not None and connection.is_open:
            return connection
        async with self._locks.setdefault(endpoint, asyncio.Lock()):
            connection = self._connections.get(endpoint)
            if connection is None or not connection.is_open:
                connection = await WireConnection.open(endpoint)
                if self.is_closed:
                    connection.close()
                self.check_open()
                self._connections = {other: one for other, one in self._connections.items() if one.is_open}
                self._connections[endpoint] = connection
            return connection

    def check_open(self) -> None:
        if self.is_closed:
            raise InvalidArgument("the client of these segment stores is closed; make another one")

    def close(self) -> None:
        """Close all, for good. What has no answer yet is ``UnknownOutcome``."""
        self.is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
