"""Runs blocking clients of segments and tables against a wire server of this process, and against an older one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pravega_common.errors import BadKeyVersion, SegmentNotFound, UnsupportedOperation
from pravega_common.wire import commands as c
from pravega_common.wire.codec import encode
from pravega_common.wire.versions import EXTENSIONS
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.stream_tokens import StreamTokens
from pravega_streams.segment.segment_client import SegmentClient
from pravega_streams.table.blocking_table import BlockingTable
from pravega_streams.table.table_client import NOT_EXISTS

TABLE = "scope/sinks_kvtable/0.#epoch.0"


class OneStore:
    """Answers a ``SegmentClient`` like a controller of one store."""

    tokens = StreamTokens(lambda scope, stream: "", needed=False)

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        return self._endpoint


async def with_client(endpoint: Endpoint, use: Callable[[SegmentClient], Any]) -> Any:
    """Calls ``use`` in a thread of its own, since the server needs the loop."""
    client = SegmentClient(cast(ControllerClient, OneStore(endpoint)), call_time_s=5.0)
    try:
        return await asyncio.to_thread(use, client)
    finally:
        client.close()


async def test_conditional_puts_and_pages(endpoint: Endpoint) -> None:
    def use(client: SegmentClient) -> None:
        table = BlockingTable(client, TABLE)
        with pytest.raises(SegmentNotFound):
            table.get(b"k")
        assert table.create()
        assert not table.create()
        assert table.get(b"k").version == NOT_EXISTS
        first = table.put(b"k", b"one", NOT_EXISTS)
        with pytest.raises(BadKeyVersion):
            table.put(b"k", b"two", NOT_EXISTS)
        second = table.put(b"k", b"two", first)
        assert (table.get(b"k").value, table.get(b"k").version) == (b"two", second)
        for number in range(250):
            table.put(b"%d" % number, b"v", NOT_EXISTS)
        assert len({item.key for item in table.items()}) == len(list(table.items())) == 251

    await with_client(endpoint, use)


async def test_an_old_store_is_not_asked_for_boundaries() -> None:
    """A real 0.13 closes the connection on a command that it does not know."""
    asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(c.Hello(16, 5)))
        asked.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def use(client: SegmentClient) -> None:
        with pytest.raises(UnsupportedOperation, match="speaks version 16"):
            client.locate_offset("scope/stream/0.#epoch.0", 10)

    await with_client(Endpoint("127.0.0.1", port), use)
    assert await asked == encode(c.Hello(17, 5, EXTENSIONS))
    server.close()


async def test_our_store_answers_for_boundaries(endpoint: Endpoint) -> None:
    def use(client: SegmentClient) -> None:
        with pytest.raises(SegmentNotFound):
            client.locate_offset("scope/stream/0.#epoch.0", 10)

    await with_client(endpoint, use)
