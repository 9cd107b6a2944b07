"""Reads and appends the bytes of a segment of a store in memory over a real socket."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import (
    InvalidArgument,
    SegmentSealed,
    SegmentTruncated,
    StreamSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.model.segments import SegmentInfo, SegmentRange
from pravega_common.wire import commands as c
from pravega_common.wire import framing
from pravega_streams.byte_stream import byte_stream
from pravega_streams.byte_stream.byte_stream import ByteStream
from pravega_streams.connection import blocking
from pravega_streams.event import block_writer, write_budget
from pravega_streams.event.block_writer import BlockWriters
from tests.support.fakes.wire_store import FakeSegment, FakeStore
from tests.support.interrupts import Interrupt

RANGE = SegmentRange("s", "t", 0, 0.0, 1.0)


class Log:
    """A stream of one segment, and its client."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.segment = self.store.segments[RANGE.name] = FakeSegment()
        segments = SimpleNamespace(endpoints=self.store, info=self.info, seal=self.seal, truncate=self.truncate)
        self.client: Any = SimpleNamespace(controller=self, segments=segments)

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return [RANGE]

    def info(self, segment: str) -> SegmentInfo:
        return SegmentInfo(segment, self.segment.start, len(self.segment.data), self.segment.sealed, 0)

    def seal(self, segment: str) -> None:
        if self.segment.sealed:
            raise SegmentSealed(segment)
        self.segment.sealed = True

    def truncate(self, segment: str, offset: int) -> None:
        if not self.segment.start <= offset <= len(self.segment.data):
            raise SegmentTruncated(segment, self.segment.start, offset)  # What a store answers in both cases.
        self.segment.start = offset

    def opened(self) -> ByteStream:
        return ByteStream(self.client, "s", "t", read_time_s=0.05)


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.store.close()


@pytest.fixture
def file(log: Log) -> Iterator[ByteStream]:
    with log.opened() as made:
        yield made


def test_a_half_line_is_read_once_it_is_whole(log: Log, file: ByteStream) -> None:
    log.segment.data += b"first\nhalf"
    assert file.readline() == b"first\n"
    for read in (file.readline, file.readlines, lambda: next(file)):
        with pytest.raises(Unavailable, match="no whole line"):
            read()
        assert file.tell() == 6
    assert file.readline(2) == b"ha" and file.seek(6) == 6
    log.segment.data += b" line\nlast"
    assert next(file) == b"half line\n"
    log.segment.sealed = True
    assert [file.readline(), file.readline()] == [b"last", b""]
    file.seek(0)
    assert file.readlines() == [b"first\n", b"half line\n", b"last"]


def test_a_line_is_not_asked_for_byte_by_byte(log: Log, file: ByteStream) -> None:
    asked: list[c.Command] = []
    log.store.before = asked.append
    log.segment.data += (b"x" * 9_000 + b"\n") * 2 + b"end\nhalf"
    assert [len(line) for line in (file.readline(), file.readline(7_000), file.readline())] == [9_001, 7_000, 2_001]
    assert file.readline() == b"end\n" and file.tell() == 18_006
    assert sum(isinstance(command, c.ReadSegment) for command in asked) == 3 + 2 + 1 + 1


def test_a_read_that_fails_midway_is_repeated_from_its_beginning(
    log: Log, file: ByteStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 1_000
    log.segment.data += content
    log.segment.sealed = True
    real, calls = ByteStream._read, 0

    def failing(self: ByteStream, length: int) -> memoryview | None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Unavailable("the store is away")
        return real(self, length)

    monkeypatch.setattr(ByteStream, "_read", failing)
    file.seek(5)
    with pytest.raises(Unavailable):
        file.read()
    assert file.tell() == 5
    assert file.read() == content[5:]
    assert file.read() == b""


def test_what_is_there_is_read_up_to_an_open_tail(log: Log, file: ByteStream) -> None:
    log.segment.data += b"content"
    assert file.read() == b"content"
    assert file.read() is None
    with pytest.raises(InvalidArgument):
        file.seek(-1)
    assert file.tell() == 7, "a refused seek moves nothing"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of four bytes is a block, and the second one on its way is waited for."""
    monkeypatch.setattr(byte_stream, "piece_bytes_max", 4)
    monkeypatch.setattr(block_writer, "block_bytes_max", 4)
    monkeypatch.setattr(block_writer, "blocks_in_flight_max", 2)


def test_a_write_that_raised_has_taken_all_of_its_bytes(log: Log, file: ByteStream, small_pieces: None) -> None:
    away = True
    log.store.before = lambda command: "close" if away and isinstance(command, c.SetupAppend) else None
    file._append()
    assert file._writers is not None
    file._writers.attach_time_s = 0.1
    with pytest.raises(Unavailable):
        file.write(b"0123456789abcdef")
    with pytest.raises(Unavailable):
        file.flush()
    with pytest.raises(Unavailable):
        file.write(b"ghij")
    away = False
    assert file.write(b"kl") == 2
    file.flush()
    assert bytes(log.segment.data) == b"0123456789abcdefghijkl"


def test_a_sealed_stream_keeps_no_bytes_that_it_will_not_take(log: Log, small_pieces: None) -> None:
    log.segment.sealed = True
    file = log.opened()
    for _ in range(3):
        with pytest.raises(StreamSealed):
            file.write(b"0123456789abcdef")
    assert not file._unwritten
    with pytest.raises(StreamSealed):
        file.close()
    assert file.closed


def test_a_closed_stream_takes_no_bytes_that_nobody_would_flush(log: Log) -> None:
    file = log.opened()
    file.write(b"content")
    file.close()
    for use in (lambda: file.write(b"late"), lambda: file.read(1), file.readline):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert bytes(log.segment.data) == b"content"


def test_a_number_is_no_content(log: Log, file: ByteStream) -> None:
    """Python makes that many zeros of it where bytes are asked for."""
    with pytest.raises(TypeError):
        file.write(5)
    file.write(memoryview(bytearray(b"abcd")).cast("i"))
    file.flush()
    assert bytes(log.segment.data) == b"abcd"


def test_an_interrupt_anywhere_leaves_whole_writes_once(small_pieces: None) -> None:
    for place in itertools.count():
        interrupt = Interrupt(place, byte_stream, block_writer, blocking, write_budget, framing)
        log = Log()
        file = log.opened()
        for content in (b"0123456789", b"abcdef"):
            with interrupt.active():
                file.write(content)
        with interrupt.active():
            file.flush()
        file.close()
        log.store.close()
        # One that was interrupted in its first steps is not the stream's.
        assert bytes(log.segment.data) in (b"0123456789abcdef", b"0123456789", b"abcdef"), place
        if not interrupt.has_come:
            break


def test_a_stream_whose_seal_is_repeated_is_sealed(log: Log, file: ByteStream) -> None:
    """As after an answer that was lost."""
    file.write(b"content")
    for _ in range(2):
        file.seal()
    assert log.segment.sealed and bytes(log.segment.data) == b"content"


def test_a_truncation_behind_the_end_is_not_said_to_be_before_the_start(file: ByteStream, log: Log) -> None:
    file.write(b"six by")
    file.flush()
    assert file.truncate(4) == 4
    with pytest.raises(InvalidArgument, match="cannot be truncated at 100: it ends before"):
        file.truncate(100)
    with pytest.raises(SegmentTruncated, match="offset 2 is below the start offset 4"):
        file.truncate(2)
    assert log.segment.start == 4


@pytest.mark.parametrize("is_passed_over", [False, True])
def test_a_stream_that_gave_up_does_not_wait_again_when_its_block_is_left(
    log: Log, monkeypatch: pytest.MonkeyPatch, is_passed_over: bool
) -> None:
    """Its error is on its way already. Who passed it over asks again by leaving, and is told again."""
    now_s = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    def made(endpoints: Any) -> BlockWriters:
        return BlockWriters(endpoints, acknowledge_time_s=60.0, monotonic_s=lambda: now_s, sleep=sleep)

    monkeypatch.setattr(byte_stream, "BlockWriters", made)
    log.store.before = lambda command: "close" if isinstance(command, c.AppendBlockEnd) else None
    file, gave_up_s = log.opened(), 0.0
    with pytest.raises(UnknownOutcome, match="acknowledged for 60 s"), file:
        file.write(b"content")
        try:
            file.flush()
        except UnknownOutcome:
            gave_up_s = now_s
            if not is_passed_over:
                raise
    assert gave_up_s > 60.0 and file.closed
    assert (now_s > gave_up_s + 60.0) == is_passed_over


@pytest.mark.parametrize("read_time_s", [0.0, 0.05])
def test_bytes_that_are_there_are_read_however_short_a_read_waits_at_the_tail(log: Log, read_time_s: float) -> None:
    """A program that polls gives no time; the store takes its own."""
    log.segment.data += b"content"

    def slow(command: c.Command) -> None:
        if isinstance(command, c.ReadSegment):
            time.sleep(0.1)  # In real time, as the socket's limit is: longer than the read has.

    log.store.before = slow
    with ByteStream(log.client, "s", "t", read_time_s=read_time_s) as file:
        assert file.read(7) == b"content"
        assert file.read(1) is None
        log.segment.sealed = True
        assert file.read(1) == b""


def test_a_container_that_moved_is_followed_though_the_store_it_left_lives_on(log: Log) -> None:
    """As when a rebalance moves it: the old owner answers, and keeps its connections."""
    log.segment.data += b"content"
    owner = log.store
    log.client.segments.endpoints = SimpleNamespace(
        resolve=lambda segment: owner.endpoint, token=log.store.token, forget=log.store.forget
    )
    successor = FakeStore()
    successor.segments = log.store.segments
    with ByteStream(log.client, "s", "t", read_time_s=2.0) as file:
        assert file.read(3) == b"con"
        log.store.before = lambda command: (
            c.WrongHost(command.request_id, RANGE.name, "", "") if isinstance(command, c.ReadSegment) else None
        )
        owner = successor
        assert file.read(4) == b"tent"
    successor.close()


def test_threads_write_to_a_byte_stream_each_piece_whole(log: Log) -> None:
    threads, count, piece_bytes = 6, 100, 20_000

    def write(stream: ByteStream, thread: int) -> None:
        for number in range(count):
            stream.write(bytes([thread]) * piece_bytes)
            if number % 20 == thread:
                stream.flush()

    with log.opened() as stream, ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(write, stream), range(threads)))
    data = bytes(log.segment.data)
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    assert sorted(pieces) == [bytes([thread]) * piece_bytes for thread in range(threads) for _ in range(count)]
