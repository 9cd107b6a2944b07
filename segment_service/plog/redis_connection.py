"""Speaks the Redis protocol on one connection: many requests in flight, answers in the order of the calls.

There is no pool, no retry and no lock. When the connection breaks, every unanswered request gets ``ConnectionLost``:
whether the server did it is unknown.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

import hiredis

from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.invariants import check
from pravega_common.runtime.local_socket import widen
from pravega_common.services.cluster.redis_script import Script
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess, RedisEndpoint
from segment_service.contracts.buffer import Buffer

requests_in_flight_max: Final = 4096
"""Requests without an answer on one connection; callers bound themselves far below it."""

Reply = Any
"""``bytes``, ``int``, ``None``, a list of replies, or the exception that stands for a failed request."""
OnReply = Callable[[Reply], None]


class ConnectionLost(UnknownOutcome):
    """The connection broke before the answer came."""


class ReplyError(Unavailable):
    """The server refused the request and did nothing; ``code`` is the first word of its answer, such as ``OOM``."""

    def __init__(self, text: str) -> None:
        self.code = text.partition(" ")[0]
        way_out = "; set redis.username and redis.password_file" if self.code == "NOAUTH" else ""
        super().__init__(f"Redis refused a request: {text}{way_out}")


def encode_command(*args: Buffer | str | int) -> bytes:
    """A small command in the Redis protocol (RESP2)."""
    parts: list[Buffer] = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = arg if isinstance(arg, bytes | bytearray | memoryview) else str(arg).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); check redis.ca_file"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS there; use redis://, or the port that does"
    return str(error) or "timed out"


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


class ConnectionTimers(Protocol):
    """The time of a connection: an event loop, or a fake that a test moves."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...


class RedisConnection(asyncio.Protocol):
    """Open with ``RedisConnection.open``; single use: once broken or aborted it stays so."""

    def __init__(self, address: str, reply_timeout_s: float, timers: ConnectionTimers | None = None) -> None:
        self.address = address
        self._reply_timeout_s = reply_timeout_s
        self._reader = hiredis.Reader(replyError=ReplyError)
        self._waiting: deque[OnReply] = deque()
        self._transport: asyncio.WriteTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._timers = timers or self._loop
        self._progress_s = 0.0
        self._timer: Timer | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        connect_timeout_s: float,
        reply_timeout_s: float,
        timers: ConnectionTimers | None = None,
        access: RedisAccess = OPEN_ACCESS,
    ) -> RedisConnection:
        """Connect to ``[rediss://]host:port`` or ``unix:/path``, and log in; ``Unavailable`` if that fails in time."""
        loop = asyncio.get_running_loop()
        connection = cls(address, reply_timeout_s, timers)
        try:
            async with asyncio.timeout(connect_timeout_s):
                if address.startswith("unix:"):
                    transport, _ = await loop.create_unix_connection(lambda: connection, address.removeprefix("unix:"))
                    widen(transport.get_extra_info("socket"))
                else:
                    place = RedisEndpoint.parse(address)
                    await loop.create_connection(
                        lambda: connection,
                        place.host,
                        place.port,
                        ssl=access.tls.context if place.has_tls else None,
                        server_hostname=place.host if place.has_tls else None,
                    )
                await connection._log_in(access)
        except (OSError, TimeoutError) as error:
            connection.abort()
            raise Unavailable(f"Redis at {address} is not reachable: {_reason(error)}") from error
        except BaseException:  # also a cancellation: nobody has the connection who could close it later
            connection.abort()
            raise
        return connection

    async def _log_in(self, access: RedisAccess) -> None:
        if not access.credentials:
            return
        try:
            await self.call("AUTH", *access.credentials)
        except ReplyError as error:
            # Not chained: its text is the server's, and may hold what was sent.
            raise Unavailable(
                f"Redis at {self.address} refused the login of {access.describe()} ({error.code}): "
                "check redis.username and redis.password_file"
            ) from None

    @property
    def is_open(self) -> bool:
        return not self._closed

    def send(self, request: Sequence[Buffer], on_reply: OnReply) -> None:
        """Send the buffers of one encoded request; ``on_reply`` is called once, on the loop, in request order.

        The buffers must never change: the transport keeps views on them. On a broken connection the call back comes
        at once.
        """
        if self._closed or self._transport is None:
            on_reply(ConnectionLost(f"the connection to Redis at {self.address} is closed"))
            return
        check(len(self._waiting) < requests_in_flight_max, "too many requests in flight", address=self.address)
        if not self._waiting:
            self._progress_s = self._timers.time()
            if self._timer is None:
                self._timer = self._timers.call_later(self._reply_timeout_s, self._check_timeout)
        self._waiting.append(on_reply)
        self._transport.writelines(request)

    async def call(self, *args: Buffer | str | int) -> Reply:
        """One small command; raises ``ReplyError`` or ``ConnectionLost``."""
        future: asyncio.Future[Reply] = self._loop.create_future()

        def on_reply(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        self.send([encode_command(*args)], on_reply)
        reply = await future
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def run(self, script: Script, keys: Sequence[str], *args: Buffer | str | int) -> Reply:
        """Call a script by its digest, loading it when the server does not know it."""
        try:
            return await self.call("EVALSHA", script.digest, len(keys), *keys, *args)
        except ReplyError as error:
            if error.code != "NOSCRIPT":
                raise
        return await self.call("EVAL", script.body, len(keys), *keys, *args)

    def abort(self) -> None:
        """Close without waiting; unanswered requests end with ``ConnectionLost``."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._lose(f"the connection to Redis at {self.address} was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's does not derive from it

    def data_received(self, data: bytes) -> None:
        self._progress_s = self._timers.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                if not self._waiting:
                    raise hiredis.ProtocolError("an answer without a request")
                self._waiting.popleft()(reply)
        except hiredis.ProtocolError as error:
            self._lose(f"Redis at {self.address} does not speak its protocol: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lose(f"the connection to Redis at {self.address} broke: {exc or 'closed by the server'}")

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._waiting or self._closed:
            return
        left_s = self._progress_s + self._reply_timeout_s - self._timers.time()
        if left_s <= 0:
            self._lose(f"Redis at {self.address} gave no answer for {self._reply_timeout_s} s")
            self.abort()
        else:
            self._timer = self._timers.call_later(left_s, self._check_timeout)

    def _lose(self, reason: str) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for on_reply in waiting:
            on_reply(ConnectionLost(reason))
