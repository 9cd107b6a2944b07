"""Reads and appends the bytes of a segment of a store in memory over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import InvalidArgument, Unavailable
from pravega_common.model.segments import SegmentInfo, SegmentRange
from pravega_streams.byte_stream.byte_stream import ByteStream
from tests.support.fakes.wire_store import FakeSegment, FakeStore

RANGE = SegmentRange("s", "t", 0, 0.0, 1.0)


class Log:
    """A stream of one segment, and its client."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.segment = self.store.segments[RANGE.name] = FakeSegment()
        segments = SimpleNamespace(endpoints=self.store, info=self.info, seal=self.seal)
        self.client: Any = SimpleNamespace(controller=self, segments=segments)

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return [RANGE]

    def info(self, segment: str) -> SegmentInfo:
        return SegmentInfo(segment, self.segment.start, len(self.segment.data), self.segment.sealed, 0)

    def seal(self, segment: str) -> None:
        self.segment.sealed = True

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
