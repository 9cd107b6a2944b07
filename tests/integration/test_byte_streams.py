"""Writes and reads byte streams on real services, beside the PyPI client."""

from __future__ import annotations

import io
import threading
from functools import partial

import pytest

from pravega_common.errors import InvalidArgument, SegmentTruncated, StreamSealed
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.byte_stream.byte_stream import ByteStream
from pravega_streams.client import StreamClient
from tests.support.cluster import client, cluster, new_stream_in
from tests.support.rust_client import rust_stream_manager

__all__ = ["client", "cluster"]

SCOPE = "bytes"
pytestmark = pytest.mark.timeout(120)
new_stream = partial(new_stream_in, SCOPE)


def test_bytes_come_back_through_the_interfaces_of_io(client: StreamClient) -> None:
    stream = new_stream(client)
    content = bytes(range(256)) * 20_000
    with ByteStream(client, SCOPE, stream, read_time_s=0.3) as file:
        assert file.write(content) == len(content)
        assert file.write(b"") == 0
        file.flush()
        assert file.current_tail_offset() == len(content)
        reader = io.BufferedReader(file, 1 << 20)
        assert reader.read(len(content)) == content
        assert file.tell() == len(content)
        assert file.readinto(bytearray(1)) is None, "nothing came in time"
        assert file.seek(-3, io.SEEK_END) == len(content) - 3
        buffer = bytearray(10)
        assert file.readinto(buffer) == 3 and buffer[:3] == content[-3:]
        assert file.seek(256) == 256 and file.seek(10, io.SEEK_CUR) == 266
        assert file.readinto(buffer) == 10 and bytes(buffer) == content[266:276]
        with pytest.raises(InvalidArgument):
            file.seek(-1)


def test_a_byte_stream_is_truncated_and_sealed(client: StreamClient) -> None:
    stream = new_stream(client)
    file = ByteStream(client, SCOPE, stream, read_time_s=0.3)
    file.write(b"hello world")
    file.flush()
    assert file.truncate(6) == 6
    assert file.current_head_offset() == 6
    file.seek(0)
    with pytest.raises(SegmentTruncated):
        file.readinto(bytearray(1))
    file.seek(6)
    file.seal()
    with pytest.raises(StreamSealed):
        file.write(b"more")
        file.flush()
    assert file.read(100) == b"world"
    assert file.read(100) == b"", "the end of a sealed stream"
    file._writer = None
    file.close()
    with pytest.raises(InvalidArgument):
        ByteStream(client, SCOPE, new_stream(client, 2))


def test_a_read_waits_at_the_tail(client: StreamClient) -> None:
    stream = new_stream(client)
    with ByteStream(client, SCOPE, stream) as reading, ByteStream(client, SCOPE, stream) as writing:

        def write() -> None:
            writing.write(b"late")
            writing.flush()

        timer = threading.Timer(0.3, write)
        timer.start()
        assert reading.read(10) == b"late"
        timer.join()


def test_the_pypi_client_and_ours_share_a_byte_stream(cluster: StandaloneProcess, client: StreamClient) -> None:
    stream = new_stream(client)
    manager = rust_stream_manager(cluster.controller_uri)
    theirs = manager.create_byte_stream(SCOPE, stream)
    theirs.write(b"theirs ")
    theirs.flush()
    with ByteStream(client, SCOPE, stream) as ours:
        ours.write(b"ours")
        ours.flush()
        assert io.BufferedReader(ours).read(11) == b"theirs ours"
        buffer = bytearray(11)
        assert manager.create_byte_stream(SCOPE, stream).readinto(buffer) == 11
        assert bytes(buffer) == b"theirs ours"
