"""Sends commands or raw bytes to a segment store, and reads replies one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

from pravega_common.runtime.client_tls import ClientTls
from pravega_common.wire import codec
from pravega_common.wire.commands import Command, Hello
from pravega_common.wire.framing import FrameParser

reply_timeout_s = 20.0
_C = TypeVar("_C", bound=Command)


class WireClient:
    """One socket to a segment store."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = FrameParser()
        self._replies: deque[Command] = deque()

    @classmethod
    async def connect(cls, port: int, *, greet: bool = True, ca_file: str = "") -> WireClient:
        context = ClientTls.from_file(ca_file).context if ca_file else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        client = cls(reader, writer)
        if greet:
            assert await client.call(Hello(17, 5), Hello) == Hello(17, 5)
        return client

    def send(self, *commands: Command) -> None:
        self._writer.writelines([part for command in commands for part in codec.encode_parts(command)])

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def reply(self) -> Command:
        """The next reply; ``ConnectionResetError`` when the server closed."""
        while not self._replies:
            data = await asyncio.wait_for(self._reader.read(1 << 16), reply_timeout_s)
            if not data:
                raise ConnectionResetError("closed by the server")
            for type_code, payload in self._parser.feed(data):
                self._replies.append(codec.decode(type_code, payload))
        return self._replies.popleft()

    async def expect(self, kind: type[_C]) -> _C:
        reply = await self.reply()
        assert isinstance(reply, kind), reply
        return reply

    async def call(self, command: Command, kind: type[_C]) -> _C:
        self.send(command)
        return await self.expect(kind)

    async def closed_by_server(self) -> list[Command]:
        """Wait until the server closes; returns the replies that came before."""
        replies = []
        try:
            while True:
                replies.append(await self.reply())
        except (ConnectionResetError, BrokenPipeError):
            return replies

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionResetError, BrokenPipeError):
            return
