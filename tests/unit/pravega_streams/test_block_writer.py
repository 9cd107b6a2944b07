"""Runs the block writer against a store in memory over a real socket."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pravega_common.errors import (
    AccessDenied,
    AuthenticationFailed,
    InvalidArgument,
    SegmentNotFound,
    SegmentSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.resources import Permission
from pravega_common.wire import commands as c
from pravega_common.wire import framing
from pravega_common.wire.codec import encode
from pravega_streams.connection import blocking, silence
from pravega_streams.connection.blocking import HasMoved, WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.idle_ends import idle_time_max_s
from pravega_streams.event import block_writer, write_budget
from pravega_streams.event.block_writer import BlockWriter, BlockWriters
from tests.support import eventually
from tests.support.fakes.wire_store import FakeSegment, FakeStore
from tests.support.interrupts import Interrupt
from tests.support.security import tokens_of

SEGMENT = "s/t/0.#epoch.0"


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    made.segments[SEGMENT] = FakeSegment()
    yield made
    made.close()


@pytest.fixture
def writers(store: FakeStore) -> Iterator[BlockWriters]:
    made = BlockWriters(store, attach_time_s=2.0)
    yield made
    made.close()


def open_writer(writers: BlockWriters, segment: str = SEGMENT) -> BlockWriter:
    return writers.open(segment, uuid.uuid4().bytes)


def piece(index: int, size: int = 100) -> memoryview:
    return memoryview(bytes([index % 251]) * size)


def test_pieces_arrive_in_order_and_gather(store: FakeStore, writers: BlockWriters) -> None:
    writer = open_writer(writers)
    pieces = [piece(index, 300_000) for index in range(10)]
    for data in pieces:
        writer.write(data, 3)
    writer.flush()
    assert store.segments[SEGMENT].data == b"".join(pieces)
    assert store.segments[SEGMENT].block_sizes == [900_000] * 3 + [300_000]
    assert store.segments[SEGMENT].numbers[writer.writer_id] == 30
    assert writer.unacknowledged() == []


def test_a_process_that_is_forked_does_not_write_as_the_same_writer(
    store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store would take what comes second for what it has: acknowledged, and not written."""
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    writer.write(piece(2), 1)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InvalidArgument, match="is used in process 1; make one in each"):
            writer.flush()
    assert store.segments[SEGMENT].data == piece(1)
    writer.flush()
    assert store.segments[SEGMENT].data == bytes(piece(1)) + bytes(piece(2))


def test_a_process_that_is_forked_has_no_connection_open(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two would take answers to the other, with the same ids of requests."""
    connection = WireSocket(store.endpoint)
    assert connection.is_open
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        assert not connection.is_open
    assert connection.is_open
    connection.close()


def test_a_block_is_what_the_codec_makes_of_it() -> None:
    # Blocks never leave the writer but as bytes on its socket, where their frame cannot be seen alone.
    pieces = [block_writer.Piece(piece(1, 10), 1), block_writer.Piece(piece(2, 20), 2)]
    block = block_writer._Block(pieces, 3, 33)
    joined = b"".join(item.data for item in pieces)
    expected = encode(c.AppendBlockEnd(bytes(range(16)), 30, joined, 3, 33, 7))
    assert b"".join(block_writer._block_frame(bytes(range(16)), block, 7)) == expected


def test_nothing_written_opens_no_connection(store: FakeStore, writers: BlockWriters) -> None:
    open_writer(writers).flush()
    assert store.connection_count == 0


def test_many_segments_share_one_socket(store: FakeStore, writers: BlockWriters) -> None:
    made = []
    for index in range(5):
        name = f"s/t/{index}.#epoch.0"
        store.segments[name] = FakeSegment()
        made.append(open_writer(writers, name))
    for round_number in range(40):
        for index, writer in enumerate(made):
            writer.write(piece(index * 40 + round_number, 200_000), 1)
    for writer in made:
        writer.start_flush()
    for index, writer in enumerate(made):
        writer.flush()
        expected = b"".join(piece(index * 40 + number, 200_000) for number in range(40))
        assert store.segments[f"s/t/{index}.#epoch.0"].data == expected
    assert store.connection_count == 1


def many_writers(store: FakeStore, writers: BlockWriters, count: int) -> list[BlockWriter]:
    """Writers of a segment each, and a piece for each of them."""
    names = [f"s/t/{index}.#epoch.0" for index in range(count)]
    store.segments.update({name: FakeSegment() for name in names})
    made = [open_writer(writers, name) for name in names]
    for index, writer in enumerate(made):
        writer.write(piece(index), 1)
    return made


def flush_all(made: list[BlockWriter]) -> None:
    for writer in made:
        writer.start_flush()
    for writer in made:
        writer.flush()


@pytest.mark.parametrize("at_once", [3, 256])
def test_segments_are_set_up_without_a_round_trip_each(
    store: FakeStore, writers: BlockWriters, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_writer, "set_ups_in_flight_max", at_once)
    waiting: list[int] = []

    def count(command: c.Command) -> None:
        before = waiting[-1] if waiting else 0
        waiting.append(before + isinstance(command, c.SetupAppend) - isinstance(command, c.AppendBlockEnd))

    store.before = count
    flush_all(many_writers(store, writers, 20))
    assert max(waiting) == min(20, at_once), "sent before the answer to the first is read, up to the limit"
    assert [bytes(store.segments[f"s/t/{index}.#epoch.0"].data) for index in range(20)] == [
        bytes(piece(index)) for index in range(20)
    ]


def test_a_store_is_not_left_with_the_writers_of_all_that_was_written_before(
    store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps each for as long as its connection lasts, and has room for a number of them: a process that writes one
    transaction after the other would use it up, though all of its writers are closed."""
    monkeypatch.setattr(block_writer, "set_ups_left_max", 20)
    kept: list[int] = []

    def count(command: c.Command) -> None:
        if isinstance(command, c.SetupAppend):
            connections = store.connection_count
            kept.extend([0] * (connections - len(kept)))
            kept[connections - 1] += 1

    store.before = count
    for _ in range(30):
        made = many_writers(store, writers, 7)
        flush_all(made)
        for writer in made:
            writer.close()
    assert sum(kept) == 30 * 7
    assert max(kept) <= 20 + 7 - 1, kept
    assert len(kept) == 10, "and a connection serves many of them"
    assert all(store.segments[f"s/t/{index}.#epoch.0"].data == piece(index) for index in range(7))


def test_a_socket_with_writers_on_it_stays(
    store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_writer, "set_ups_left_max", 5)
    name = "s/t/99.#epoch.0"
    store.segments[name] = FakeSegment()
    stays = open_writer(writers, name)
    stays.write(piece(1), 1)
    stays.flush()
    for _ in range(5):
        made = many_writers(store, writers, 7)
        flush_all(made)
        for writer in made:
            writer.close()
    stays.write(piece(2), 1)
    stays.flush()
    assert store.segments[name].data == bytes(piece(1)) + bytes(piece(2))
    assert store.connection_count == 1


@pytest.mark.parametrize("fault", ["close", "close after"])
@pytest.mark.parametrize("kind", [c.SetupAppend, c.AppendBlockEnd])
def test_a_connection_lost_among_many_set_ups_neither_loses_nor_repeats(
    store: FakeStore, writers: BlockWriters, kind: type[c.Command], fault: str
) -> None:
    seen = 0

    def once(command: c.Command) -> str | None:
        nonlocal seen
        seen += isinstance(command, kind)
        return fault if isinstance(command, kind) and seen == 7 else None

    store.before = once
    flush_all(many_writers(store, writers, 20))
    for index in range(20):
        assert store.segments[f"s/t/{index}.#epoch.0"].data == piece(index)
    assert store.connection_count == 2


def test_a_store_that_greeted_is_not_asked_for_tls_when_it_hangs_up(store: FakeStore) -> None:
    """Its Hello waits unread while set-ups are sent: that it is lost says nothing about TLS, and costs no handshake."""
    store.before = lambda command: "close"
    wire = WireSocket(store.endpoint)
    with pytest.raises(UnknownOutcome):
        for number in range(1_000_000):
            wire.send(c.SetupAppend(number, bytes(16), SEGMENT, ""))
    assert store.connection_count == 1


def test_one_of_many_that_is_missing_says_so_itself(store: FakeStore, writers: BlockWriters) -> None:
    made = many_writers(store, writers, 5)
    del store.segments["s/t/2.#epoch.0"]
    for writer in made:
        writer.start_flush()
    for index, writer in enumerate(made):
        if index != 2:
            writer.flush()
    with pytest.raises(SegmentNotFound):
        made[2].flush()
    assert [bytes(left.data) for left in made[2].unacknowledged()] == [bytes(piece(2))]
    with pytest.raises(SegmentNotFound):
        made[2].write(piece(3), 1)
        made[2].flush()


@pytest.mark.parametrize("fault", ["close", "close after"])
def test_lost_connections_neither_lose_nor_repeat(store: FakeStore, writers: BlockWriters, fault: str) -> None:
    seen = 0

    def every_third(command: c.Command) -> str | None:
        nonlocal seen
        if isinstance(command, c.AppendBlockEnd):
            seen += 1
            return fault if seen % 3 == 0 else None
        return None

    store.before = every_third
    writer = open_writer(writers)
    pieces = [piece(index, 600_000) for index in range(20)]
    for data in pieces:
        writer.write(data, 1)
    writer.flush()
    assert store.segments[SEGMENT].data == b"".join(pieces)
    assert store.connection_count > 1


@pytest.mark.parametrize("sent_bytes", [0, 600_000])
def test_what_an_interrupt_kept_from_being_sent_is_sent(
    store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch, sent_bytes: int
) -> None:
    """Ctrl-C while a store holds appends back: ``with EventWriter`` flushes on its way out, or the caller goes on."""
    writer = open_writer(writers)
    writer.write(piece(1, 1_100_000), 1)
    writer.flush()
    send_all, left = WireSocket._send_all, [True]

    def interrupted(self: WireSocket, parts: list[Any], has_moved: HasMoved) -> None:
        if left and left.pop():
            assert isinstance(self._socket, socket.socket)
            self._socket.sendall(b"".join(parts)[:sent_bytes])
            raise KeyboardInterrupt
        send_all(self, parts, has_moved)

    monkeypatch.setattr(WireSocket, "_send_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.write(piece(2, 1_100_000), 1)
    writer.write(piece(3, 1_100_000), 1)
    writer.flush()
    assert store.segments[SEGMENT].data == b"".join(piece(index, 1_100_000) for index in (1, 2, 3))


def test_an_interrupt_anywhere_neither_loses_nor_repeats(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer has taken reaches the segment once, in order, wherever Ctrl-C stops it; what not, does not."""
    monkeypatch.setattr(block_writer, "block_bytes_max", 250)
    monkeypatch.setattr(block_writer, "blocks_in_flight_max", 2)
    for place in itertools.count():
        segment = store.segments[f"s/t/{place}.#epoch.0"] = FakeSegment()
        interrupt = Interrupt(place, block_writer, blocking, write_budget, framing)
        writers = BlockWriters(store, attach_time_s=2.0, held_bytes=1000)
        writer = open_writer(writers, f"s/t/{place}.#epoch.0")
        expected = b""
        for data in [piece(index) for index in range(8)]:
            with interrupt.active():
                writer.write(data, 1)
            expected += data if writer.pieces_taken > len(expected) // len(data) else b""
        with interrupt.active():
            writer.flush()
        writer.flush()
        assert segment.data == expected, place
        writers.close()
        if not interrupt.has_come:
            break


def test_the_owner_is_looked_for_again(store: FakeStore, writers: BlockWriters) -> None:
    refusals = 3

    def wrong_host(command: c.Command) -> c.Command | None:
        nonlocal refusals
        if isinstance(command, c.SetupAppend) and refusals:
            refusals -= 1
            return c.WrongHost(command.request_id, command.segment, "", "")
        return None

    store.before = wrong_host
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    assert store.segments[SEGMENT].data == piece(1)


def ended_token(command: c.SetupAppend) -> c.Command:
    return c.AuthTokenCheckFailed(command.request_id, "", c.TOKEN_EXPIRED)


def no_room(command: c.SetupAppend) -> c.Command:
    return c.ErrorMessage(command.request_id, command.segment, "65536 writers are set up", c.THROTTLED)


@pytest.mark.parametrize("refusal", [ended_token, no_room])
@pytest.mark.parametrize("lost", [False, True])
def test_a_refused_set_up_that_may_pass_is_tried_again(
    store: FakeStore,
    writers: BlockWriters,
    refusal: Callable[[c.SetupAppend], c.Command],
    lost: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a new token; at first, and when the writer attaches again after a lost connection."""
    refusals = 0 if lost else 3
    forgotten: list[str] = []
    monkeypatch.setattr(store, "forget", forgotten.append)

    def before(command: c.Command) -> str | c.Command | None:
        nonlocal refusals, lost
        if isinstance(command, c.AppendBlockEnd) and command.last_event_number == 2 and lost:
            lost, refusals = False, 3
            return "close"
        if isinstance(command, c.SetupAppend) and refusals:
            refusals -= 1
            return refusal(command)
        return None

    store.before = before
    writer = open_writer(writers)
    for index in (1, 2):
        writer.write(piece(index), 1)
        writer.flush()
    assert store.segments[SEGMENT].data == bytes(piece(1)) + bytes(piece(2))
    assert len(forgotten) >= 3 and not refusals


def test_a_set_up_that_is_refused_all_the_time_says_why(store: FakeStore) -> None:
    now = 0.0

    def sleep(delay_s: float) -> None:
        nonlocal now
        now += delay_s

    store.before = lambda command: no_room(command) if isinstance(command, c.SetupAppend) else None
    writers = BlockWriters(store, attach_time_s=10, monotonic_s=lambda: now, sleep=sleep)
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    with pytest.raises(Unavailable, match=r"no store took the appends for 10 s: .*65536 writers are set up"):
        writer.flush()
    store.before = lambda command: None
    writer.flush()
    assert store.segments[SEGMENT].data == piece(1)
    writers.close()


def test_a_set_up_that_is_not_permitted_is_an_error_at_once(store: FakeStore, writers: BlockWriters) -> None:
    asked: list[c.Command] = []

    def refuse(command: c.Command) -> c.Command | None:
        asked.append(command)
        if not isinstance(command, c.SetupAppend):
            return None
        return c.AuthTokenCheckFailed(command.request_id, "", c.TOKEN_CHECK_FAILED)

    store.before = refuse
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            writer.flush()
    assert len(asked) == 1


def test_who_may_only_read_is_told_so(store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tokens_of().sign("alice", {"prn::/scope:s/stream:t": Permission.READ})
    monkeypatch.setattr(store, "token", lambda segment: token)

    def refuse(command: c.Command) -> c.Command | None:
        if not isinstance(command, c.SetupAppend):
            return None
        assert command.token == token
        return c.AuthTokenCheckFailed(command.request_id, "", c.TOKEN_CHECK_FAILED)

    store.before = refuse
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    with pytest.raises(AccessDenied, match="user alice has no READ_UPDATE on prn::/scope:s/stream:t"):
        writer.flush()


def test_a_late_refusal_of_what_was_sent_before_does_not_count(store: FakeStore, writers: BlockWriters) -> None:
    """A store refuses all blocks that follow the first; by then the writer may be set up again on the connection."""
    blocks = 0

    def refuse(command: c.Command) -> c.Command | None:
        nonlocal blocks
        blocks += isinstance(command, c.AppendBlockEnd)
        if not isinstance(command, c.AppendBlockEnd) or blocks > 3:
            return None
        if blocks == 1:
            return c.WrongHost(command.request_id, SEGMENT, "", "")
        return c.AuthTokenCheckFailed(command.request_id, "", c.TOKEN_EXPIRED)

    store.before = refuse
    writer = open_writer(writers)
    for index in range(3):
        writer.write(piece(index), 1)
        writer.start_flush()
    writer.flush()
    assert store.segments[SEGMENT].data == b"".join(map(piece, range(3)))


def test_wrong_host_in_the_middle(store: FakeStore, writers: BlockWriters) -> None:
    blocks = 0

    def move(command: c.Command) -> c.Command | None:
        nonlocal blocks
        if isinstance(command, c.AppendBlockEnd):
            blocks += 1
            if blocks == 2:
                return c.WrongHost(command.request_id, SEGMENT, "", "")
        return None

    store.before = move
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    writer.write(piece(2), 1)
    writer.flush()
    assert store.segments[SEGMENT].data == bytes(piece(1)) + bytes(piece(2))


def test_sealed_segment_gives_back_what_was_not_written(store: FakeStore, writers: BlockWriters) -> None:
    writer = open_writer(writers)
    writer.write(piece(1), 1, "first")
    writer.flush()
    store.segments[SEGMENT].sealed = True
    writer.write(piece(2), 2, "second")
    writer.start_flush()
    writer.write(piece(3), 1, "third")
    with pytest.raises(SegmentSealed):
        writer.flush()
    assert [(item.event_count, item.tag) for item in writer.unacknowledged()] == [(2, "second"), (1, "third")]


def test_a_sealed_segment_gives_back_nothing_that_it_took_from_a_lost_connection(
    store: FakeStore, writers: BlockWriters
) -> None:
    """The first block is on its way to the log yet when the new connection is set up, and so is the seal."""
    segment, is_sent = store.segments[SEGMENT], False

    def late(command: c.Command) -> str | None:
        nonlocal is_sent
        if isinstance(command, c.AppendBlockEnd):
            if not is_sent:
                is_sent = True
                return "close"
            if not segment.sealed:
                segment.data += piece(1)
                segment.numbers[writer.writer_id], segment.sealed = 1, True
        return None

    store.before = late
    writer = open_writer(writers)
    writer.write(piece(1), 1, "first")
    writer.start_flush()
    writer.write(piece(2), 1, "second")
    with pytest.raises(SegmentSealed):
        writer.flush()
    assert segment.data == piece(1)
    assert [item.tag for item in writer.unacknowledged()] == ["second"]


def test_missing_segment(writers: BlockWriters) -> None:
    writer = open_writer(writers, "s/t/9.#epoch.0")
    writer.write(piece(1), 1)
    with pytest.raises(SegmentNotFound, match="s/t/9"):
        writer.flush()


def test_other_writers_go_on_after_one_failed(store: FakeStore, writers: BlockWriters) -> None:
    lost, good = open_writer(writers, "s/t/9.#epoch.0"), open_writer(writers)
    lost.write(piece(1), 1)
    good.write(piece(2), 1)
    with pytest.raises(SegmentNotFound):
        lost.flush()
    lost.close()
    good.flush()
    assert store.segments[SEGMENT].data == piece(2)


def test_number_conflict_after_reconnect_is_resolved(store: FakeStore, writers: BlockWriters) -> None:
    """Blocks of a lost connection may be stored after the new one was set up."""
    conflicts = 2

    def late(command: c.Command) -> c.Command | None:
        nonlocal conflicts
        if isinstance(command, c.AppendBlockEnd) and conflicts:
            conflicts -= 1
            return c.InvalidEventNumber(command.writer_id, command.request_id, "", command.last_event_number)
        return None

    store.before = late
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    assert store.segments[SEGMENT].data == piece(1)


def test_no_store_in_time(store: FakeStore) -> None:
    now = 0.0

    def sleep(delay_s: float) -> None:
        nonlocal now
        now += delay_s

    store.before = lambda command: "close"
    writers = BlockWriters(store, attach_time_s=10, monotonic_s=lambda: now, sleep=sleep)
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    with pytest.raises(Unavailable, match=r"s/t/0.*no store took the appends for 10 s"):
        writer.flush()
    assert len(writer.unacknowledged()) == 1


@dataclass
class PassingTime:
    """A clock by which each block takes a store ``block_s``; ``answer`` is what it says instead of taking one."""

    block_s: float
    answer: c.Command | None
    now_s: float = 0.0

    def before(self, command: c.Command) -> c.Command | None:
        if not isinstance(command, c.AppendBlockEnd):
            return None
        self.now_s += self.block_s
        return self.answer


def test_a_store_that_acknowledges_nothing_is_not_waited_for_without_an_end(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sets writers up, and says that it is there, again and again."""
    monkeypatch.setattr(block_writer, "reply_time_max_s", 0.05)
    time = PassingTime(600.0, c.KeepAlive())
    store.before = time.before
    writers = BlockWriters(store, monotonic_s=lambda: time.now_s)
    writer = open_writer(writers)
    writer.write(piece(1), 3)
    with pytest.raises(UnknownOutcome, match=r"s/t/0.*3 events were sent, and nothing .* acknowledged for 3600 s"):
        writer.flush()
    assert [item.data for item in writer.unacknowledged()] == [piece(1)]
    store.before = lambda command: None
    writer.write(piece(2), 1)
    writer.flush()
    assert store.segments[SEGMENT].data == bytes(piece(1)) + bytes(piece(2))
    writers.close()


class HoldingStore(FakeStore):
    """Takes no block, nor reads what follows it, before the fourth connection, as while Tier 2 is away."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def _handle(self, connection: Any, decoder: Any, command: c.Command) -> bool:
        if isinstance(command, c.AppendBlockEnd):
            if self.connection_count >= 4:
                self.goes_on.set()
            self.goes_on.wait(eventually.wait_max_s)
        return super()._handle(connection, decoder, command)


def test_more_blocks_than_a_socket_holds_wait_as_long_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has set the writer up: that its blocks do not leave is not for want of a store."""
    monkeypatch.setattr(block_writer, "reply_time_max_s", 0.4)
    now_s, silence_s = 0.0, 180.0
    store = HoldingStore()
    store.segments[SEGMENT] = FakeSegment()
    writers = BlockWriters(store, monotonic_s=lambda: now_s)
    lose = writers.lost

    def lost(channel: Any) -> None:
        nonlocal now_s
        now_s += silence_s
        lose(channel)

    monkeypatch.setattr(writers, "lost", lost)
    writer = open_writer(writers)
    pieces = [piece(index, 4_000_000) for index in range(8)]
    for data in pieces:
        writer.write(data, 1)
    writer.flush()
    assert store.segments[SEGMENT].data == b"".join(pieces)
    writers.close()
    store.close()


def test_a_store_that_refuses_what_it_set_up_is_not_asked_without_an_end(store: FakeStore) -> None:
    """Each set-up is a success, so no try of it is the last one; nor is it asked without a pause."""
    now_s = 0.0
    pauses_s: list[float] = []

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s
        pauses_s.append(pause_s)

    store.before = lambda command: "close" if isinstance(command, c.AppendBlockEnd) else None
    writers = BlockWriters(store, acknowledge_time_s=60.0, monotonic_s=lambda: now_s, sleep=sleep)
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    with pytest.raises(UnknownOutcome, match="acknowledged for 60 s"):
        writer.flush()
    assert pauses_s[:3] == [0.02, 0.04, 0.08]
    assert max(pauses_s) == 2.0
    assert store.connection_count < 50
    writers.close()


def test_a_slow_store_is_waited_for_as_long_as_it_acknowledges(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the blocks of another writer, behind which this one's wait."""
    now_s, answer_s = 0.0, 3_000.0
    writers = BlockWriters(store, monotonic_s=lambda: now_s)
    first, second = many_writers(store, writers, 2)
    flush_all([first, second])
    receive = writers.receive

    def slowly(channel: Any, has_moved: HasMoved) -> None:
        nonlocal now_s
        now_s += answer_s
        receive(channel, has_moved)

    monkeypatch.setattr(writers, "receive", slowly)
    for number in range(7):
        first.write(piece(number), 1)
        first.start_flush()
    second.write(piece(9), 1)
    second.flush()
    assert second.unacknowledged() == []
    assert now_s == 8 * answer_s
    writers.close()


def test_what_many_segments_hold_is_bounded(store: FakeStore) -> None:
    """Without a budget each segment gathers its own block, 1,000 here, and has up to eight more on their way."""
    limit_bytes, segments, rounds, size = 1_000_000, 1_000, 12, 700
    writers = BlockWriters(store, attach_time_s=2.0, held_bytes=limit_bytes)
    made = []
    for index in range(segments):
        name = f"s/t/{index}.#epoch.0"
        store.segments[name] = FakeSegment()
        made.append(open_writer(writers, name))
    for number in range(rounds):
        for index, writer in enumerate(made):
            # A few are written to far more than the others.
            writer.write(piece(index + number, size if index >= 3 else 60 * size), 1)
            held = sum(len(item.data) for one in made for item in one.unacknowledged()) if index % 100 == 0 else 0
            assert held <= limit_bytes
            assert writers.budget.held_bytes <= limit_bytes
    for writer in made:
        writer.flush()
    assert writers.budget.held_bytes == 0
    for index in range(segments):
        expected = b"".join(piece(index + number, size if index >= 3 else 60 * size) for number in range(rounds))
        assert store.segments[f"s/t/{index}.#epoch.0"].data == expected
    # The largest go first: those that have little wait, and leave as fewer and larger blocks.
    assert len(store.segments["s/t/9.#epoch.0"].block_sizes) < rounds
    writers.close()


def test_a_budget_is_kept_where_a_segment_is_sealed(store: FakeStore) -> None:
    """Its bytes stay, to be routed again; its writer says so, and the others go on."""
    writers = BlockWriters(store, attach_time_s=2.0, held_bytes=10_000)
    store.segments["s/t/1.#epoch.0"] = FakeSegment()
    store.segments[SEGMENT].sealed = True
    sealed, other = open_writer(writers), open_writer(writers, "s/t/1.#epoch.0")
    sealed.write(piece(1, 6_000), 1)
    for number in range(20):
        other.write(piece(number, 6_000), 1)
    other.flush()
    assert len(store.segments["s/t/1.#epoch.0"].data) == 120_000
    with pytest.raises(SegmentSealed):
        sealed.flush()
    assert [len(item.data) for item in sealed.unacknowledged()] == [6_000]
    sealed.close()
    assert writers.budget.held_bytes == 0
    writers.close()


class Moved:
    """A resolver that knows the former owner of a segment until it is told to forget it."""

    def __init__(self, former: FakeStore, owner: FakeStore) -> None:
        self._known, self._owner = former.endpoint, owner.endpoint

    def resolve(self, segment: str) -> Endpoint:
        return self._known

    def token(self, segment: str) -> str:
        return ""

    def forget(self, segment: str) -> None:
        self._known = self._owner


def test_a_store_that_lost_the_segment_and_does_not_know_it(store: FakeStore) -> None:
    """After a pause it says for a moment that a segment is missing that its successor has made."""
    former = FakeStore()
    writers = BlockWriters(Moved(former, store), attach_time_s=2.0)
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    assert former.connection_count == 1 and store.segments[SEGMENT].data == piece(1)
    writers.close()
    former.close()


def test_a_store_that_holds_appends_back_is_told_of(
    store: FakeStore, writers: BlockWriters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in a while, however often it is asked whether it has the segment still."""
    monkeypatch.setattr(blocking, "silence_min_s", 0.01)
    monkeypatch.setattr(silence, "silence_min_s", 0.01)
    monkeypatch.setattr(silence, "silence_max_s", 0.02)
    monkeypatch.setattr(block_writer, "notice_time_min_s", 0.1)
    writer = open_writer(writers)
    writer.write(piece(1), 1)
    writer.flush()
    assert not caplog.records

    def hold(command: c.Command) -> None:
        if isinstance(command, c.AppendBlockEnd):
            eventually.eventually_blocking(lambda: bool(caplog.records))

    store.before = hold
    writer.write(piece(2), 1)
    writer.flush()
    (record,) = caplog.records
    assert f"the segment store at {store.endpoint} has acknowledged no append to {SEGMENT} for 0 s" in record.message


class PresentOwner:
    """A resolver of segments that all are at one store, which may change."""

    def __init__(self, *stores: FakeStore) -> None:
        self._stores = stores
        for store in stores:
            store.segments = stores[0].segments
        self._endpoint = stores[0].endpoint

    def resolve(self, segment: str) -> Endpoint:
        return self._endpoint

    def token(self, segment: str) -> str:
        return ""

    def forget(self, segment: str) -> None:
        pass

    def move(self, to: FakeStore, answer: str) -> None:
        """Have the others answer so, ``wrong host`` or as a fault of theirs."""
        self._endpoint = to.endpoint

        def refuse(command: c.Command) -> str | c.Command | None:
            if not isinstance(command, c.AppendBlockEnd):
                return None
            return answer if answer == "close" else c.WrongHost(command.request_id, SEGMENT, "", "")

        for store in self._stores:
            store.before = (lambda _: None) if store is to else refuse


@pytest.fixture
def three() -> Iterator[list[FakeStore]]:
    made = [FakeStore() for _ in range(3)]
    made[0].segments[SEGMENT] = FakeSegment()
    yield made
    for store in made:
        store.close()


def test_sockets_to_stores_that_segments_left_are_closed_after_a_while(three: list[FakeStore]) -> None:
    now_s = 0.0
    owner = PresentOwner(*three)
    writers = BlockWriters(owner, monotonic_s=lambda: now_s)
    writer, opened = open_writer(writers), []
    for number, store in enumerate(three):
        owner.move(store, "wrong host")
        writer.write(piece(number), 1)
        writer.flush()
        opened.append(writers.channel(SEGMENT).socket)
    now_s = idle_time_max_s
    writers.channel(SEGMENT)
    assert [one.is_open for one in opened] == [True] * 3, (
        "a writer is off its socket for a moment whenever it is set up"
    )
    now_s += 1
    writers.channel(SEGMENT)
    assert [one.is_open for one in opened] == [False, False, True]
    assert [channel.socket for channel in writers._channels.values()] == opened[2:]
    writer.write(piece(3), 1)
    writer.flush()
    assert three[0].segments[SEGMENT].data == b"".join(bytes(piece(number)) for number in range(4))
    assert [store.connection_count for store in three] == [1, 1, 1]
    writers.close()


def test_a_socket_is_kept_for_writers_that_came_back_to_it(three: list[FakeStore]) -> None:
    """However long they write nothing, and whatever moves meanwhile."""
    now_s = 0.0
    owner = PresentOwner(*three)
    writers = BlockWriters(owner, monotonic_s=lambda: now_s)
    writer = open_writer(writers)
    for number, store in enumerate([three[0], three[1], three[0]]):
        owner.move(store, "wrong host")
        writer.write(piece(number), 1)
        writer.flush()
    kept = writers.channel(SEGMENT).socket
    owner.move(three[2], "wrong host")
    now_s += 100 * idle_time_max_s
    other = open_writer(writers)
    other.write(piece(3), 1)
    other.flush()
    assert kept.is_open
    assert sorted(map(str, writers._channels)) == sorted(str(store.endpoint) for store in (three[0], three[2]))
    assert [store.connection_count for store in three] == [1, 1, 1]
    writers.close()


def test_a_lost_connection_is_forgotten(three: list[FakeStore]) -> None:
    owner = PresentOwner(*three)
    writers = BlockWriters(owner)
    writer = open_writer(writers)
    for number, store in enumerate(three):
        owner.move(store, "close")
        writer.write(piece(number), 1)
        writer.flush()
        assert list(writers._channels) == [store.endpoint]
    writers.close()
    assert not writers._channels
