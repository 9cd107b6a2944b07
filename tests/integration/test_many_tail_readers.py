"""Ten thousand readers wait at the tail of one store's segments, each on a connection of its own."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    CreateSegment,
    DataAppended,
    KeepAlive,
    ReadSegment,
    SegmentCreated,
    SegmentRead,
    SetupAppend,
)
from segment_service.open_files import raise_open_files
from tests.support.wire_client import WireClient

readers_wanted = 10_000
segments = 10
connecting_at_once = 200
reader_bytes_max = 64 * 1024
"""Memory of the server that a waiting reader may take."""


@pytest.fixture
async def server() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.wire_server_process",
        str(readers_wanted + 100),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    yield process
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 30) == 0


def resident_bytes(process: asyncio.subprocess.Process) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def name(number: int) -> str:
    return f"scope/stream/{number % segments}.#epoch.0"


def writer_id(number: int) -> bytes:
    return bytes([number + 1]) * 16


async def waiting_reader(port: int, number: int) -> WireClient:
    reader = await WireClient.connect(port)
    reader.send(ReadSegment(name(number), 0, 1_000, "", number), KeepAlive())
    await reader.expect(KeepAlive)
    return reader


@pytest.mark.slow
async def test_ten_thousand_tail_readers_wait_and_are_woken(server: asyncio.subprocess.Process) -> None:
    """As many as this process may open files for, if that is fewer."""
    count = raise_open_files(readers_wanted).connections_max
    assert server.stdout is not None
    line = b""
    while not line.startswith(b"port "):
        line = await asyncio.wait_for(server.stdout.readline(), 30)
    port = int(line.split()[1])
    writer = await WireClient.connect(port)
    for number in range(segments):
        await writer.call(CreateSegment(number, name(number), 0, 0), SegmentCreated)
        await writer.call(SetupAppend(number, writer_id(number), name(number)), AppendSetup)
    before = resident_bytes(server)
    readers: list[WireClient] = []
    for first in range(0, count, connecting_at_once):
        numbers = range(first, min(first + connecting_at_once, count))
        readers += await asyncio.gather(*(waiting_reader(port, number) for number in numbers))
    held = resident_bytes(server) - before
    assert len(readers) == count
    assert held / count < reader_bytes_max
    for number in range(segments):
        writer.send(AppendBlockEnd(writer_id(number), 5, b"hello", 1, 1, number))
        await writer.expect(DataAppended)
    for number, reader in enumerate(readers):
        result = await reader.expect(SegmentRead)
        assert (result.request_id, bytes(result.data), result.at_tail) == (number, b"hello", True)
    print(f"{count} readers, {held / count / 1024:.1f} KiB each in the server")
    for reader in (*readers, writer):
        await reader.close()
