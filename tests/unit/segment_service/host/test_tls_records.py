"""Parts of replies as TLS records hold them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.tls import ServerTls
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from pravega_common.wire.framing import FrameParser
from segment_service.host.listener import WireServer
from segment_service.host.tls_records import in_records, record_bytes
from tests.support.certificates import Authority
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore

SIZES = st.one_of(
    st.integers(0, 100), st.integers(record_bytes - 2, record_bytes + 2), st.integers(0, 5 * record_bytes)
)


@given(st.lists(SIZES, max_size=20))
def test_the_bytes_are_the_same_and_records_are_full(sizes: list[int]) -> None:
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    made = in_records([part if number % 2 else memoryview(part) for number, part in enumerate(parts)])
    assert b"".join(made) == b"".join(parts)
    assert all(made)
    assert all(len(part) >= record_bytes for part in made[:-1])


def test_a_large_part_is_not_copied() -> None:
    data = memoryview(bytearray(1 << 20))
    head, rest = in_records([b"head", data])
    assert len(head) == record_bytes
    assert isinstance(rest, memoryview) and rest.obj is data.obj
    assert in_records([data])[0] is data


@pytest.mark.parametrize("count", [200])
def test_replies_of_a_turn_leave_in_one_record(count: int, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = ClientTls.from_file(authority.file).context

    async def main() -> list[int]:
        store = InMemorySegmentStore()
        tls = ServerTls(authority.issue().section, SystemClock()).context
        server = WireServer(store, InMemoryTableStore(store), store, tls=tls)
        await server.start()
        records = await asyncio.to_thread(records_of_keep_alives, server.port, context, count)
        await server.stop()
        return records

    frame = len(codec.encode(c.KeepAlive()))
    records = uvloop.run(main())
    assert sum(records) >= count * frame
    assert len(records) <= 5


def records_of_keep_alives(port: int, context: ssl.SSLContext, count: int) -> list[int]:
    """The lengths of the records that bring so many replies to one send."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:

        def exchange() -> None:
            if outgoing.pending:
                plain.sendall(outgoing.read())
            data = plain.recv(1 << 16)
            incoming.write(data)
            received.extend(data)

        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                exchange()
        received.clear()
        secured.write(codec.encode(c.KeepAlive()) * count)
        parser, replies = FrameParser(), 0
        while replies < count:
            try:
                replies += len(parser.feed(secured.read(1 << 16)))
            except ssl.SSLWantReadError:
                exchange()
    return record_lengths(received)


def record_lengths(received: bytearray) -> list[int]:
    lengths, at = [], 0
    while at < len(received):
        (length,) = struct.unpack_from(">H", received, at + 3)
        lengths.append(length)
        at += 5 + length
    return lengths
