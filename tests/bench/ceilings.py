"""Measures the machine without our code: Spark's Python API alone, and Redis alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.support.servers import running_redis

batch_rows: Final = 10_000
batch_bytes: Final = 4 * 1024 * 1024
redis_entry_bytes: Final = 1024 * 1024
redis_entries_in_flight: Final = 4


class CeilingSource(DataSource):
    """A source that makes its events out of nothing, and a sink that counts them and throws them away."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return "event binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return CeilingWriter()


class CeilingReader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self.size_bytes = int(options["size"])
        self.events = int(options["events"])
        self.tasks = int(options["tasks"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = max(1, min(batch_rows, batch_bytes // self.size_bytes))
        event = b"x" * self.size_bytes
        batch = pa.RecordBatch.from_arrays([pa.array([event] * rows, pa.binary())], ["event"])
        left = self.events // self.tasks
        while left > 0:
            yield batch.slice(0, min(left, rows))
            left -= rows


class CeilingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: no row was kept."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: no row was kept."""


def redis_bytes_per_second(folder: Path, total_bytes: int = 512 * 1024 * 1024) -> float:
    """Entries of 1 MiB added to a stream of a Redis that syncs every write, four in flight on one connection."""
    payload = b"x" * redis_entry_bytes
    with running_redis(folder) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        answers = connection.makefile("rb")
        count = total_bytes // redis_entry_bytes
        started_s = time.perf_counter()
        for number in range(count):
            _send_entry(connection, payload)
            if number >= redis_entries_in_flight:
                _answer(answers)
        for _ in range(min(count, redis_entries_in_flight)):
            _answer(answers)
        return total_bytes / (time.perf_counter() - started_s)


def add_entry(connection: socket.socket, answers: Any, payload: bytes) -> None:
    """Adds an entry and waits for the answer."""
    _send_entry(connection, payload)
    _answer(answers)


def _send_entry(connection: socket.socket, payload: bytes) -> None:
    head = b"*5\r\n$4\r\nXADD\r\n$1\r\nk\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n" % len(payload)
    connection.sendall(b"".join((head, payload, b"\r\n")))


def _answer(answers: Any) -> None:
    line = answers.readline()
    if not line.startswith(b"$"):
        raise RuntimeError(f"Redis answered {line!r}")
    answers.readline()
