"""Runs the range reader against a store in memory over a real socket."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from pravega_common.errors import AuthenticationFailed, InvalidArgument, SegmentNotFound, SegmentTruncated, Unavailable
from pravega_common.wire import commands as c
from pravega_common.wire import framing
from pravega_streams.batch import range_reader
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.connection import blocking
from pravega_streams.connection.idle_ends import idle_time_max_s
from tests.support.fakes.wire_store import FakeSegment, FakeStore
from tests.support.interrupts import Interrupt

SEGMENT = "s/t/0.#epoch.0"


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    made.segments[SEGMENT] = FakeSegment(bytearray(random.Random(1).randbytes(10_000_000)))
    yield made
    made.close()


@pytest.fixture
def sockets() -> Iterator[ReadSockets]:
    made = ReadSockets()
    yield made
    made.close()


def read(reader: RangeReader, step: int = 1_000_000) -> bytes:
    got, buffer = b"", bytearray(step)
    while count := reader.read_into(memoryview(buffer)):
        got += buffer[:count]
    assert reader.position == reader.end
    return got


@pytest.mark.parametrize(("start", "end"), [(0, 10_000_000), (123, 9_999_999), (5_000_000, 5_000_001), (7, 7)])
@pytest.mark.parametrize("reply_bytes", [1 << 30, 700_001])
def test_exactly_the_range(store: FakeStore, sockets: ReadSockets, start: int, end: int, reply_bytes: int) -> None:
    store.read_bytes_max = reply_bytes
    assert read(RangeReader(SEGMENT, start, end, store, sockets)) == store.segments[SEGMENT].data[start:end]


@pytest.fixture
def buffered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the buffers that connections receive to."""
    sizes: list[int] = []

    def small_buffer(size: int) -> memoryview:
        sizes.append(size)
        return framing.small_buffer(size)

    monkeypatch.setattr(blocking, "small_buffer", small_buffer)
    return sizes


def test_replies_that_fit_are_received_where_they_go(
    store: FakeStore, sockets: ReadSockets, buffered: list[int]
) -> None:
    reader, target = RangeReader(SEGMENT, 11, 10_000_000, store, sockets), bytearray(9_999_989)
    assert reader.read_into(memoryview(target)) == len(target)
    assert target == store.segments[SEGMENT].data[11:]
    assert sum(buffered) < 0.05 * len(target)


def test_a_target_that_takes_no_whole_reply_gets_the_bytes_all_the_same(
    store: FakeStore, sockets: ReadSockets, buffered: list[int]
) -> None:
    assert read(RangeReader(SEGMENT, 0, 3_000_000, store, sockets), 9_999) == store.segments[SEGMENT].data[:3_000_000]
    assert sum(buffered) > 3_000_000


def test_reading_ends_in_front_of_a_reply_that_does_not_fit_behind_others(
    store: FakeStore, sockets: ReadSockets, buffered: list[int]
) -> None:
    reader, room = RangeReader(SEGMENT, 0, 10_000_000, store, sockets), 2 * range_reader.request_bytes_max + 1_000
    target = memoryview(bytearray(room))
    assert [reader.read_into(target) for _ in range(4)] == [
        room - 1_000,
        room - 1_000,
        10_000_000 - 2 * (room - 1_000),
        0,
    ]
    assert sum(buffered) < 0.05 * 10_000_000


def test_replies_that_come_in_another_order_are_put_in_theirs(store: FakeStore, sockets: ReadSockets) -> None:
    """A store sends less than was asked for, so what is missing is asked for behind the later requests."""
    seen = 0

    def shorter(command: c.Command) -> c.Command | None:
        nonlocal seen
        seen += isinstance(command, c.ReadSegment)
        if seen != 1 or not isinstance(command, c.ReadSegment):
            return None
        data = bytes(store.segments[SEGMENT].data[command.offset : command.offset + 70_000])
        return c.SegmentRead(SEGMENT, command.offset, False, False, data, command.request_id)

    store.before = shorter
    assert (
        read(RangeReader(SEGMENT, 5, 9_000_005, store, sockets), 9_000_000) == store.segments[SEGMENT].data[5:9_000_005]
    )


@pytest.mark.parametrize("wrong", ["offset", "length", "ids exchanged"])
def test_a_reply_to_another_request_is_not_taken_for_this_one(
    store: FakeStore, sockets: ReadSockets, wrong: str
) -> None:
    """Where the head lets its data be placed, the rest of it may not, and the data are not counted."""
    wrong_replies_left = 2

    def before(command: c.Command) -> c.Command | None:
        nonlocal wrong_replies_left
        if not isinstance(command, c.ReadSegment) or not wrong_replies_left:
            return None
        wrong_replies_left -= 1
        offset, length, request_id = command.offset, command.suggested_length, command.request_id
        if wrong == "ids exchanged":
            request_id += 1 if wrong_replies_left else -1
        data = bytes(length - 10 if wrong == "length" else length)
        return c.SegmentRead(SEGMENT, offset - (wrong == "offset"), False, wrong == "length", data, request_id)

    store.before = before
    end = 500 + 2 * range_reader.request_bytes_max
    if wrong == "length":
        with pytest.raises(InvalidArgument, match="sealed"):
            read(RangeReader(SEGMENT, 500, end, store, sockets), end)
    else:
        assert read(RangeReader(SEGMENT, 500, end, store, sockets), end) == store.segments[SEGMENT].data[500:end]


def test_connection_is_used_again(store: FakeStore, sockets: ReadSockets) -> None:
    for start in range(0, 1_000_000, 100_000):
        read(RangeReader(SEGMENT, start, start + 100_000, store, sockets))
    assert store.connection_count == 1


def test_given_up_reader_leaves_no_replies_to_others(store: FakeStore, sockets: ReadSockets) -> None:
    reader = RangeReader(SEGMENT, 0, 10_000_000, store, sockets)
    reader.read_into(memoryview(bytearray(10)))
    reader.close()
    assert read(RangeReader(SEGMENT, 50, 60, store, sockets)) == store.segments[SEGMENT].data[50:60]


def test_lost_connections(store: FakeStore, sockets: ReadSockets) -> None:
    seen = 0

    def every_third(command: c.Command) -> str | None:
        nonlocal seen
        seen += 1
        return "close" if seen % 3 == 0 else None

    store.before = every_third
    assert read(RangeReader(SEGMENT, 0, 10_000_000, store, sockets)) == store.segments[SEGMENT].data


def test_an_interrupt_anywhere_neither_loses_nor_repeats(
    store: FakeStore, sockets: ReadSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever Ctrl-C stops a read, what it has read by its position is there, and the next one goes on behind it."""
    monkeypatch.setattr(range_reader, "request_bytes_max", 1_000)
    monkeypatch.setattr(range_reader, "request_bytes_min", 300)
    store.read_bytes_max = 700
    for place in itertools.count():
        interrupt = Interrupt(place, range_reader, blocking, framing)
        reader, got = RangeReader(SEGMENT, 0, 5_000, store, sockets), b""
        while reader.position < reader.end:
            start, buffer = reader.position, bytearray(1_500)
            with interrupt.active():
                reader.read_into(memoryview(buffer))
            got += buffer[: reader.position - start]
        reader.close()
        assert got == store.segments[SEGMENT].data[:5_000], place
        assert read(RangeReader(SEGMENT, 50, 60, store, sockets)) == store.segments[SEGMENT].data[50:60]
        if not interrupt.has_come:
            break


def test_truncated(store: FakeStore, sockets: ReadSockets) -> None:
    store.segments[SEGMENT].start = 500
    with pytest.raises(SegmentTruncated) as caught:
        read(RangeReader(SEGMENT, 100, 1000, store, sockets))
    assert (caught.value.start_offset, caught.value.offset) == (500, 100)


def test_missing(store: FakeStore, sockets: ReadSockets) -> None:
    with pytest.raises(SegmentNotFound, match="s/t/9"):
        read(RangeReader("s/t/9.#epoch.0", 0, 10, store, sockets))


def test_sealed_before_the_end(store: FakeStore, sockets: ReadSockets) -> None:
    store.segments[SEGMENT].sealed = True
    reader = RangeReader(SEGMENT, 9_999_990, 10_000_010, store, sockets)
    with pytest.raises(InvalidArgument, match=r"sealed at offset 10000000, .* to offset 10000010"):
        read(reader)


def test_a_plain_pravega_that_refuses_the_token_of_a_read(store: FakeStore, sockets: ReadSockets) -> None:
    """It answers with the offset of the read in the place of the request id."""

    def refused(command: c.Command) -> c.Command | None:
        if isinstance(command, c.ReadSegment) and command.offset >= 1_000:
            return c.AuthTokenCheckFailed(command.offset, "", code)
        return None

    store.before = refused
    code = c.TOKEN_CHECK_FAILED
    with pytest.raises(AuthenticationFailed):
        RangeReader(SEGMENT, 1_000, 2_000, store, sockets).read_into(memoryview(bytearray(10)))
    # One that has ended is shown no longer, and the read goes on with the next.
    code, reader = c.TOKEN_EXPIRED, RangeReader(SEGMENT, 1_000, 2_000, store, sockets, sleep=lambda _: renew())

    def renew() -> None:
        store.before = lambda _: None

    assert read(reader) == store.segments[SEGMENT].data[1_000:2_000]


def test_no_store_in_time(store: FakeStore, sockets: ReadSockets) -> None:
    now = 0.0

    def sleep(delay_s: float) -> None:
        nonlocal now
        now += delay_s

    store.before = lambda command: "close"
    reader = RangeReader(SEGMENT, 0, 10, store, sockets, monotonic_s=lambda: now, sleep=sleep)
    with pytest.raises(Unavailable, match="nothing could be read at offset 0 for 120 s"):
        read(reader)


def test_connections_that_nothing_uses_end_with_the_next_use_of_another(store: FakeStore) -> None:
    """So those to stores that are gone do not add up."""
    now_s = 0.0
    sockets = ReadSockets(monotonic_s=lambda: now_s)
    others = [FakeStore() for _ in range(3)]
    left = [sockets.take(other.endpoint) for other in others for _ in range(2)]
    for one in left[::-1]:
        sockets.give_back(one.endpoint, one)
    now_s = idle_time_max_s
    kept = sockets.take(left[0].endpoint)
    assert kept is left[0]
    sockets.give_back(kept.endpoint, kept)
    assert all(one.is_open for one in left)
    now_s += 1
    assert read(RangeReader(SEGMENT, 0, 1_000, store, sockets)) == store.segments[SEGMENT].data[:1_000]
    assert [one.is_open for one in left] == [True] + [False] * 5
    assert set(sockets._idle) == {kept.endpoint, store.endpoint}
    # However long nothing used it, what is needed is used again.
    now_s += 10 * idle_time_max_s
    assert sockets.take(kept.endpoint) is kept and kept.is_open
    assert not sockets._idle
    kept.close()
    sockets.close()
    for other in others:
        other.close()
