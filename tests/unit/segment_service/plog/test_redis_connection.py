"""The Redis connection against a server that plays its answers by script."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from pravega_common.errors import Unavailable
from pravega_common.services.cluster.redis_script import Script
from pravega_common.services.redis_access import RedisAccess
from segment_service.plog.redis_connection import (
    ConnectionLost,
    RedisConnection,
    Reply,
    ReplyError,
    encode_command,
)
from tests.support.unix_sockets import is_wide

reply_timeout_s = 0.3


class Player:
    """A TCP server whose behaviour a test sets; ``requests`` holds the bytes that arrived."""

    def __init__(self) -> None:
        self.requests = bytearray()
        self.writer: asyncio.StreamWriter | None = None
        self.arrived = asyncio.Event()
        self.accepted = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.accepted.set()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                self.requests += data
                self.arrived.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.ended.set()

    async def until(self, count: int) -> None:
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()

    def answer(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)


class ManualTimer:
    """A call that is due at ``at_s``, once."""

    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """The time of a connection, which stands still until the test moves it."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._timers: list[ManualTimer] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], None], /) -> ManualTimer:
        timer = ManualTimer(self._now_s + delay, callback)
        self._timers.append(timer)
        return timer

    def advance(self, delta_s: float) -> None:
        self._now_s += delta_s
        due = [timer for timer in self._timers if timer.at_s <= self._now_s]
        self._timers = [timer for timer in self._timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.callback()


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


@pytest.fixture
async def player(timers: ManualTimers) -> AsyncIterator[tuple[Player, RedisConnection]]:
    player = Player()
    server = await asyncio.start_server(player.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = await RedisConnection.open(
        address, connect_timeout_s=2.0, reply_timeout_s=reply_timeout_s, timers=timers
    )
    await player.accepted.wait()
    yield player, connection
    connection.abort()
    server.close()
    # A connection that is left to the collector disturbs whatever test runs then.
    await player.ended.wait()


async def test_an_opening_that_is_cancelled_in_its_login_leaves_no_connection() -> None:
    """A hand-over gives up what is still connecting to a server that is slow."""
    player = Player()
    server = await asyncio.start_server(player.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    access = RedisAccess(password=SecretStr("secret"))
    opening = asyncio.ensure_future(
        RedisConnection.open(address, connect_timeout_s=5.0, reply_timeout_s=5.0, access=access)
    )
    await player.until(len(encode_command("AUTH", "secret")))
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    player.answer(b"+OK\r\n")
    async with asyncio.timeout(2.0):
        await player.ended.wait()
    server.close()


def test_commands_are_encoded() -> None:
    assert encode_command("SET", b"k\xff", 12) == b"*3\r\n$3\r\nSET\r\n$2\r\nk\xff\r\n$2\r\n12\r\n"


async def test_answers_come_in_request_order(player: tuple[Player, RedisConnection]) -> None:
    server, connection = player
    calls = [asyncio.ensure_future(connection.call("N", number)) for number in range(3)]
    await server.until(3 * len(encode_command("N", 0)))
    server.answer(b":1\r\n$-1\r")
    server.answer(b"\n-OOM no room\r\n")
    assert await calls[0] == 1
    assert await calls[1] is None
    with pytest.raises(ReplyError, match="OOM no room") as caught:
        await calls[2]
    assert caught.value.code == "OOM"


async def test_a_break_leaves_everything_unanswered_unknown(player: tuple[Player, RedisConnection]) -> None:
    server, connection = player
    replies: list[Reply] = []
    for _ in range(3):
        connection.send([b"x"], replies.append)
    await server.until(3)
    server.answer(b":1\r\n")
    assert server.writer is not None
    server.writer.close()
    with pytest.raises(ConnectionLost):
        await connection.call("PING")
    assert replies[0] == 1
    assert [type(reply) for reply in replies[1:]] == [ConnectionLost, ConnectionLost]
    assert not connection.is_open


async def test_silence_is_a_break(player: tuple[Player, RedisConnection], timers: ManualTimers) -> None:
    server, connection = player
    call = asyncio.ensure_future(connection.call("PING"))
    await server.until(1)
    timers.advance(reply_timeout_s / 2)
    assert connection.is_open
    timers.advance(reply_timeout_s / 2)
    with pytest.raises(ConnectionLost, match=r"no answer for 0\.3 s"):
        await call
    assert not connection.is_open


async def test_progress_is_not_silence(player: tuple[Player, RedisConnection], timers: ManualTimers) -> None:
    server, connection = player
    calls = [asyncio.ensure_future(connection.call("N", number)) for number in range(4)]
    await server.until(4 * len(encode_command("N", 0)))
    for call in calls:
        timers.advance(reply_timeout_s * 0.75)
        server.answer(b"+OK\r\n")
        assert await call == b"OK"


async def test_garbage_is_a_break(player: tuple[Player, RedisConnection]) -> None:
    server, connection = player
    call = asyncio.ensure_future(connection.call("PING"))
    await server.until(1)
    server.answer(b"HTTP/1.1 400\r\n")
    with pytest.raises(ConnectionLost, match="does not speak its protocol"):
        await call


async def test_scripts_are_loaded_once_when_missing(player: tuple[Player, RedisConnection]) -> None:
    server, connection = player
    script = Script("return 1")
    first = encode_command("EVALSHA", script.digest, 1, "k", "a")
    call = asyncio.ensure_future(connection.run(script, ["k"], "a"))
    await server.until(len(first))
    server.answer(b"-NOSCRIPT No matching script.\r\n")
    second = encode_command("EVAL", "return 1", 1, "k", "a")
    await server.until(len(first) + len(second))
    assert bytes(server.requests) == first + second
    server.answer(b"-NOSCRIPT again\r\n")
    with pytest.raises(ReplyError, match="again"):
        await call


async def test_nobody_listening_is_unavailable(unused_tcp_port: int) -> None:
    with pytest.raises(Unavailable, match="is not reachable"):
        await RedisConnection.open(f"127.0.0.1:{unused_tcp_port}", connect_timeout_s=1.0, reply_timeout_s=1.0)


async def test_a_unix_socket_takes_frames_in_one_piece(tmp_path: Path) -> None:
    """As much as the kernel grants; its own choice made the store and Redis take turns within a frame."""
    player = Player()
    server = await asyncio.start_unix_server(player.serve, tmp_path / "s")
    connection = await RedisConnection.open(f"unix:{tmp_path / 's'}", connect_timeout_s=5.0, reply_timeout_s=5.0)
    assert connection._transport is not None
    await player.accepted.wait()
    made = connection._transport.get_extra_info("socket")
    assert is_wide(made)
    connection.abort()
    server.close()
    await player.ended.wait()
