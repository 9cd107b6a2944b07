"""Reaches a store of the same machine by its Unix socket, and by its port where that is not to be had."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from pravega_common.runtime.local_socket import connect_locally, listening_name
from pravega_common.wire import commands as c
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.unix_sockets import is_wide

SEGMENT = "scope/stream/0.#epoch.0"
another_user = os.geteuid() + 1


@asynccontextmanager
async def serving(*, port: int = 0, local_socket: bool = True, host: str = "127.0.0.1") -> AsyncIterator[WireServer]:
    store = InMemorySegmentStore()
    server = WireServer(store, InMemoryTableStore(store), store, host=host, port=port, local_socket=local_socket)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
    assert server.failure is None


@contextmanager
def listening(name: str) -> Iterator[None]:
    """Take the name of a store's Unix socket."""
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(name)
        taken.listen()
        yield


def used(port: int, host: str = "127.0.0.1") -> socket.AddressFamily:
    """Use a connection, and return what it goes through."""
    connection = WireSocket(Endpoint(host, port))
    try:
        reply = connection.call(lambda request_id: c.GetStreamSegmentInfo(request_id, SEGMENT, ""))
        assert isinstance(reply, c.NoSuchSegment)
        stream = connection._socket
        assert isinstance(stream, socket.socket)
        return socket.AddressFamily(stream.family)
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_on_the_machine_takes_the_unix_socket(host: str) -> None:
    async with serving() as server:
        assert await asyncio.to_thread(used, server.port, host) == socket.AF_UNIX
        await eventually(lambda: bool(server.recent_closes))
        assert server.recent_closes[0][0] == "127.0.0.1 (Unix socket)"


async def test_a_store_without_one_is_reached_by_its_port() -> None:
    async with serving(local_socket=False) as server:
        assert await asyncio.to_thread(used, server.port) == socket.AF_INET


async def test_a_socket_of_another_user_is_not_used() -> None:
    async with serving() as server:
        assert connect_locally("127.0.0.1", server.port, trusted=(another_user,)) is None
        found = connect_locally("127.0.0.1", server.port)
        assert found is not None
        found.close()


async def test_the_unix_socket_takes_an_append_block_in_one_piece() -> None:
    """With the kernel's own choice a store is woken five times for a block of 1 MiB."""
    async with serving() as server:
        found = connect_locally("127.0.0.1", server.port)
        assert found is not None
        with found:
            assert is_wide(found)


async def test_a_store_whose_name_is_taken_serves_its_port() -> None:
    async with serving(local_socket=False) as first:
        port = first.port
    with listening(listening_name("127.0.0.1", port)):
        async with serving(port=port) as server:
            connection = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server.port), 10)
            await eventually(lambda: server.connection_count == 1)
            connection.close()


async def test_it_ends_with_its_store_and_comes_back_with_it() -> None:
    async with serving() as server:
        port = server.port
    assert connect_locally("127.0.0.1", port) is None
    async with serving(port=port):
        assert await asyncio.to_thread(used, port) == socket.AF_UNIX


async def test_connections_through_it_count_as_those_of_the_machine() -> None:
    store = InMemorySegmentStore()
    server = WireServer(store, InMemoryTableStore(store), store, connections_per_peer_max=1)
    await server.start()
    through_port = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server.port), 10)
    await eventually(lambda: server.connection_count == 1)
    with pytest.raises(Exception, match="connections_per_peer_max"):
        await asyncio.to_thread(used, server.port)
    through_port.close()
    await server.stop()


def test_other_addresses_have_no_unix_socket() -> None:
    assert listening_name("192.0.2.1", 12345) == ""
    assert listening_name("0.0.0.0", 12345) == listening_name("127.0.0.1", 12345) != ""
    assert connect_locally("192.0.2.1", 12345) is None
