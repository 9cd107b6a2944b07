"""Checks that a worker acknowledges what the JVM sent when it unpickles a reader or a writer."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from pravega_spark.sink.batch_writer import BatchWriter
from pravega_spark.sink.row_stream_writer import RowStreamWriter
from pravega_spark.sink.stream_writer import StreamWriter
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.filtering_batch_reader import FilteringBatchReader
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from pravega_spark.worker_socket import SentToTask, acknowledge_at_once

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_QUICKACK")

SENT: Final[list[type[SentToTask]]] = [
    BatchReader,
    FilteringBatchReader,
    StreamReader,
    PlainStreamReader,
    BatchWriter,
    StreamWriter,
    RowStreamWriter,
]
"""All readers and writers of which Spark pickles an instance for tasks."""


@pytest.fixture
def worker() -> Iterator[socket.socket]:
    """The worker's end of a connection; its acknowledgements are delayed, as after an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        jvm = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with jvm, accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            assert not is_quick(accepted)
            yield accepted


def is_quick(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_what_a_task_unpickles(worker: socket.socket, kind: type[SentToTask]) -> None:
    made = kind.__new__(kind)
    vars(made)["_options"] = "of a query"
    pickled = pickle.dumps(made)
    assert not is_quick(worker)
    assert vars(pickle.loads(pickled)) == vars(made)
    assert is_quick(worker)


def test_other_descriptors_are_left_alone() -> None:
    """Files, pipes, sockets of other kinds and closed ones are no reason to fail, and stay open."""
    ends = socket.socketpair()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with ends[0], ends[1], datagrams, socket.socket() as never_connected:
        acknowledge_at_once()
        ends[0].sendall(b"whole")
        assert ends[1].recv(10) == b"whole"
        assert never_connected.fileno() > 0 and datagrams.fileno() > 0
