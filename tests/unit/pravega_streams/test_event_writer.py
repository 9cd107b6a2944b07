"""Runs the event writer over scales against a store in memory over a real socket."""

from __future__ import annotations

import array
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import (
    InvalidArgument,
    PravegaError,
    StreamSealed,
    Throttled,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.hashing import position_of_key
from pravega_common.model.segments import SegmentInfo, SegmentRange
from pravega_common.names import segment_id, segment_name
from pravega_common.wire import commands as c
from pravega_common.wire import framing
from pravega_streams.client import StreamClient
from pravega_streams.connection import blocking
from pravega_streams.event import block_writer, event_writer, write_budget
from pravega_streams.event.block_writer import BlockWriters
from pravega_streams.event.event_writer import EventWriter
from tests.support.eventually import eventually_blocking
from tests.support.fakes.wire_store import FakeSegment, FakeStore
from tests.support.interrupts import Interrupt

ONE = (SegmentRange("s", "t", segment_id(0, 0), 0.0, 1.0),)
TWO = (SegmentRange("s", "t", segment_id(1, 1), 0.0, 0.5), SegmentRange("s", "t", segment_id(2, 1), 0.5, 1.0))
MERGED = (SegmentRange("s", "t", segment_id(3, 2), 0.0, 1.0),)
KEYS = [f"key-{number}" for number in range(20)]
LOW_KEY, HIGH_KEY = "key-0", "key-2"
"""Of the first and of the second one of two segments."""
Segments = tuple[SegmentRange, ...]


class Stream:
    """A stream, by default of one segment; ``scale`` seals it, and successors are known after some more questions."""

    def __init__(self, current: Segments = ONE) -> None:
        self.store = FakeStore()
        self.asked = 0
        self.noted: list[dict[int, int]] = []
        """Positions of times."""
        self._known_at = 0
        self._before = self._after = current
        for item in (*ONE, *TWO, *MERGED):
            self.store.segments[item.name] = FakeSegment()

    def scale(self, known_after: int, after: Segments = TWO) -> None:
        if self._known_at < self.asked:
            self._before = self._after
        self._after = after
        for item in self._before:
            self.store.segments[item.name].sealed = True
        self._known_at = self.asked + known_after

    def current_segments(self, scope: str, stream: str) -> Segments:
        self.asked += 1
        return self._after if self._known_at < self.asked else self._before

    def writer(self) -> EventWriter:
        segments = SimpleNamespace(endpoints=self.store)
        client: Any = SimpleNamespace(controller=self, segments=segments, segment_infos=self.segment_infos)
        return EventWriter(client, "s", "t")

    def segment_infos(self, scope: str, stream: str, segment_ids: Iterable[int]) -> dict[int, SegmentInfo]:
        found = {item: self.store.segments.get(segment_name(scope, stream, item)) for item in segment_ids}
        return {
            item: SegmentInfo(segment_name(scope, stream, item), 0, len(segment.data), segment.sealed, 0)
            for item, segment in found.items()
            if segment is not None
        }

    def note_time(self, scope: str, stream: str, writer_id: str, position: dict[int, int], time_ms: int) -> None:
        self.noted.append(position)

    def remove_writer(self, scope: str, stream: str, writer_id: str) -> None: ...

    def events(self, item: SegmentRange) -> list[str]:
        return [event.decode().rstrip() for event in self.store.segments[item.name].events()]


@pytest.fixture
def stream() -> Iterator[Stream]:
    made = Stream()
    yield made
    made.store.close()


@pytest.mark.parametrize("known_after", [0, 1, 2, 5])
def test_flush_returns_when_all_is_durable_also_in_the_middle_of_a_scale(stream: Stream, known_after: int) -> None:
    """A segment is sealed a little before its stream has the next epoch."""
    with stream.writer() as writer:
        for key in KEYS:
            writer.write(f"{key}/1".encode(), key)
        writer.flush()
        for key in KEYS:
            writer.write(f"{key}/2".encode(), key)
        stream.scale(known_after)
        writer.flush()
        assert stream.events(ONE[0]) == [f"{key}/1" for key in KEYS]
        for item in TWO:
            assert stream.events(item) == [
                f"{key}/2" for key in KEYS if item.key_low <= position_of_key(key) < item.key_high
            ]


def test_an_event_that_has_more_bytes_than_items_is_refused(stream: Stream) -> None:
    """With a wrong length in its header nobody could read the segment any further."""
    with stream.writer() as writer:
        with pytest.raises(InvalidArgument, match="array has items of several bytes"):
            writer.write(array.array("i", [1, 2, 3]))  # type: ignore[arg-type]
        writer.write(bytearray(b"bytes"))
        writer.write(memoryview(b"more bytes"))
    assert stream.events(ONE[0]) == ["bytes", "more bytes"]


def test_an_event_or_key_of_another_type_is_refused_as_such(stream: Stream) -> None:
    wrong: Any
    with stream.writer() as writer:
        for wrong in ("text", None, 5, ["event"]):
            with pytest.raises(InvalidArgument, match=f"an event is bytes, not {type(wrong).__name__}"):
                writer.write(wrong, "key")
        for wrong in (b"key", 5):
            with pytest.raises(InvalidArgument, match=f"a routing key is text, not {type(wrong).__name__}"):
                writer.write(b"event", wrong)
        writer.write(b"event", "key")
    assert stream.events(ONE[0]) == ["event"]


def test_a_closed_writer_takes_no_event_that_nobody_would_flush(stream: Stream) -> None:
    writer = stream.writer()
    writer.write(b"event")
    writer.close()
    with pytest.raises(InvalidArgument, match="the writer of s/t is closed"):
        writer.write(b"late")
    writer.close()
    assert stream.events(ONE[0]) == ["event"]


def test_what_a_writer_holds_is_bounded_where_errors_are_passed_over(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a program that notes the error of each event, and goes on with the next one."""
    monkeypatch.setattr(block_writer, "block_bytes_max", 1_000)
    monkeypatch.setattr(event_writer, "unwritten_bytes_max", 20_000, raising=False)
    writer = stream.writer()
    taken: list[str] = []
    stream.scale(0, ())
    for number in range(200):
        event = f"{number:200}"
        try:
            writer.write(event.encode(), "key")
        except Throttled:
            continue
        except PravegaError as error:
            assert isinstance(error, StreamSealed)
        taken.append(event.strip())
    assert len(taken) * 208 < 21_000
    with pytest.raises(StreamSealed):
        writer.flush()
    stream.scale(0, TWO)  # Nothing is lost of what was taken, if its stream goes on after all.
    writer.close()
    assert [event.strip() for item in TWO for event in stream.events(item)] == taken


def test_a_segment_that_stays_sealed_and_open_is_an_error(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events that it did not take are still the writer's: no later flush says that they are durable."""
    monkeypatch.setattr(event_writer, "epoch_time_max_s", 0.05)
    writer = stream.writer()
    writer.write(b"event", "key")
    stream.scale(10**9)
    for _ in range(2):
        with pytest.raises(Unavailable, match="names it as open"):
            writer.flush()
    stream.scale(0)
    writer.flush()
    assert [event for item in TWO for event in stream.events(item)] == ["event"]
    writer.close()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is a block, and the third one on its way is waited for."""
    monkeypatch.setattr(block_writer, "block_bytes_max", 10)
    monkeypatch.setattr(block_writer, "blocks_in_flight_max", 2)


@pytest.fixture
def two() -> Iterator[Stream]:
    made = Stream(TWO)
    yield made
    made.store.close()


def test_what_a_failed_follow_left_is_gone_on_with(two: Stream, small_blocks: None) -> None:
    """Two segments are merged into one whose store is away for longer than a writer waits."""
    writer, away = two.writer(), True
    writer._blocks.attach_time_s = 0.1
    for number in range(2):
        for key in (LOW_KEY, HIGH_KEY):
            writer.write(f"{key}/{number}".encode(), key)
    writer.flush()

    def before(command: c.Command) -> str | None:
        return "close" if away and isinstance(command, c.SetupAppend) and command.segment == MERGED[0].name else None

    two.store.before = before
    two.scale(0, MERGED)
    for number in range(2, 4):
        for key in (LOW_KEY, HIGH_KEY):
            with contextlib.suppress(Unavailable):
                writer.write(f"{key}/{number}".encode(), key)
    for _ in range(2):
        with pytest.raises(Unavailable):
            writer.flush()
    with pytest.raises(Unavailable):
        writer.write(f"{LOW_KEY}/4".encode(), LOW_KEY)
    away = False
    writer.write(f"{HIGH_KEY}/4".encode(), HIGH_KEY)
    writer.flush()
    events = [event for item in (*TWO, *MERGED) for event in two.events(item)]
    for key in (LOW_KEY, HIGH_KEY):
        assert [event for event in events if event.startswith(key)] == [f"{key}/{number}" for number in range(5)]
    assert writer._blocks.budget.held_bytes == 0
    writer.close()


def test_no_event_overtakes_one_that_waits_at_another_segment_that_was_sealed(two: Stream) -> None:
    """One of two merged segments is known to be sealed; the events at the other one are older than what comes."""
    with two.writer() as writer:
        for key in (LOW_KEY, HIGH_KEY):
            writer.write(f"{key}/1".encode(), key)
        two.scale(0, MERGED)
        for number in range(20):
            writer.write(f"{LOW_KEY}/{number + 2}".ljust(1_100_000).encode(), LOW_KEY)
        writer.write(f"{HIGH_KEY}/2".encode(), HIGH_KEY)
    events = two.events(MERGED[0])
    assert [event for event in events if event.startswith(HIGH_KEY)] == [f"{HIGH_KEY}/1", f"{HIGH_KEY}/2"]
    assert [event for event in events if event.startswith(LOW_KEY)] == [f"{LOW_KEY}/{n + 1}" for n in range(21)]


def test_what_was_stored_before_a_seal_is_not_written_again(two: Stream, small_blocks: None) -> None:
    """The answer to the block of one segment is not read yet when the other one is followed."""
    with two.writer() as writer:
        writer.write(b"first", HIGH_KEY)
        writer.flush()
        writer.write(b"stored", HIGH_KEY)
        eventually_blocking(lambda: len(two.events(TWO[1])) == 2)
        two.scale(0, MERGED)
        for number in range(5):
            writer.write(f"{number}".encode(), LOW_KEY)
    assert (two.events(TWO[1]), two.events(MERGED[0])) == (["first", "stored"], [str(number) for number in range(5)])


def test_a_successor_that_is_sealed_while_it_takes_events_is_followed_in_order(
    stream: Stream, small_blocks: None
) -> None:
    writer = stream.writer()
    for number in range(2):
        writer.write(f"{number}".encode(), LOW_KEY)
    stream.scale(1)
    blocks = 0

    def before(command: c.Command) -> None:
        nonlocal blocks
        blocks += isinstance(command, c.AppendBlockEnd) and len(stream.events(TWO[0])) == 2
        if blocks == 1:
            stream.scale(2, MERGED)
            blocks += 1

    stream.store.before = before
    for number in range(2, 12):
        writer.write(f"{number}".encode(), LOW_KEY)
    writer.close()
    found = [stream.events(item) for item in (*ONE, TWO[0], *MERGED)]
    assert [event for events in found for event in events] == [str(number) for number in range(12)]
    assert all(found[1:])


def test_a_flush_follows_a_segment_that_is_known_to_be_sealed(two: Stream) -> None:
    """Its refusal came with the answers to blocks of another segment, which still had events to send."""
    with two.writer() as writer:
        two.store.segments[TWO[0].name].sealed = True
        writer.write(b"1".ljust(1_100_000), LOW_KEY)
        for _ in range(10):
            writer.write(b"other".ljust(1_100_000), HIGH_KEY)
        assert writer._writers[TWO[0].segment_id].has_failed
        writer.write(b"2", LOW_KEY)
        two.scale(0, MERGED)
        writer.flush()
        assert [event for event in two.events(MERGED[0]) if event != "other"] == ["1", "2"]


def test_an_interrupt_anywhere_in_a_scale_neither_loses_nor_repeats(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes while events are on their way from a sealed segment to its successor."""
    monkeypatch.setattr(event_writer, "epoch_wait_s", 0.0)
    for place in itertools.count():
        interrupt = Interrupt(place, event_writer, block_writer, blocking, write_budget, framing)
        two = Stream(TWO)
        writer = two.writer()
        steps = [(f"{key}/{number}", key) for number in range(3) for key in (LOW_KEY, HIGH_KEY)]
        for event, key in steps:
            if event == f"{LOW_KEY}/1":
                two.scale(1, MERGED)
            with interrupt.active():
                writer.write(event.encode(), key)
        with interrupt.active():
            writer.flush()
        writer.close()
        two.store.close()
        events = [event for item in (*TWO, *MERGED) for event in two.events(item)]
        for one in (LOW_KEY, HIGH_KEY):
            found = [event for event in events if event.startswith(one)]
            sent = [event for event, key in steps if key == one]
            # One that was interrupted in its first steps is not the writer's.
            assert found == sent or (len(found) == len(sent) - 1 and found == [it for it in sent if it in found]), place
        assert len(events) >= len(steps) - 1, place
        if not interrupt.has_come:
            break


def test_a_writer_that_writes_nothing_notes_times_also_after_its_segments_are_gone(two: Stream) -> None:
    with two.writer() as writer:
        writer.write(b"low", LOW_KEY)
        writer.write(b"high", HIGH_KEY)
        writer.note_time(1)
        two.scale(1, MERGED)
        writer.note_time(2)
        del two.store.segments[TWO[0].name]
        writer.note_time(3)
        writer.write(b"later", LOW_KEY)
        writer.note_time(4)
    lengths = {TWO[0].segment_id: 11, TWO[1].segment_id: 12}
    assert two.noted == [lengths, lengths, {MERGED[0].segment_id: 0}, {MERGED[0].segment_id: 13}]


def test_a_closed_writer_notes_no_time_that_holds_the_watermarks_of_its_stream(stream: Stream) -> None:
    """It would be known again as a writer, and nobody would say that it is not."""
    with stream.writer() as writer:
        writer.note_time(1)
    with pytest.raises(InvalidArgument, match="the writer of s/t is closed and notes no more times"):
        writer.note_time(2)
    assert len(stream.noted) == 1


def test_a_writer_whose_last_flush_fails_gives_its_connections_up(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be closed again, which writes what is left."""
    monkeypatch.setattr(event_writer, "epoch_time_max_s", 0.05)
    writer = stream.writer()
    writer.write(b"first", "key")
    writer.flush()
    sockets = [channel.socket for channel in writer._blocks._channels.values()]
    stream.scale(10**9)
    writer.write(b"second", "key")
    with pytest.raises(Unavailable, match="names it as open"):
        writer.close()
    assert sockets and not any(socket.is_open for socket in sockets)
    stream.scale(0)
    writer.close()
    assert [event for item in TWO for event in stream.events(item)] == ["second"]


class Waiting:
    """A writer of a store that acknowledges nothing; its pauses move a clock, and pass at once."""

    def __init__(self, stream: Stream) -> None:
        self.now_s = 0.0
        stream.store.before = lambda command: "close" if isinstance(command, c.AppendBlockEnd) else None
        self.blocks = BlockWriters(
            stream.store, acknowledge_time_s=60.0, monotonic_s=lambda: self.now_s, sleep=self._sleep
        )
        self.writer = stream.writer()
        self.writer._blocks = self.blocks

    def _sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.mark.parametrize("is_passed_over", [False, True])
def test_a_writer_that_gave_up_does_not_wait_again_when_its_block_is_left(stream: Stream, is_passed_over: bool) -> None:
    """Its error is on its way already. Who passed it over asks again by leaving, and is told again."""
    waiting, gave_up_s = Waiting(stream), 0.0
    writer = waiting.writer
    with pytest.raises(UnknownOutcome, match="acknowledged for 60 s"), writer:
        writer.write(b"event")
        try:
            writer.flush()
        except UnknownOutcome:
            gave_up_s = waiting.now_s
            if not is_passed_over:
                raise
    assert gave_up_s > 60.0
    assert (waiting.now_s > gave_up_s + 60.0) == is_passed_over
    assert not waiting.blocks._channels, "those that it gave up, and closed"


def test_a_writer_whose_store_acknowledges_again_flushes_when_its_block_is_left(stream: Stream) -> None:
    """An error of the caller's own comes long after the one that the writer gave up with."""
    writer = Waiting(stream).writer
    with pytest.raises(ZeroDivisionError), writer:
        writer.write(b"first")
        with contextlib.suppress(UnknownOutcome):
            writer.flush()
        stream.store.before = lambda command: None
        writer.flush()
        writer.write(b"second")
        raise ZeroDivisionError
    assert stream.events(ONE[0]) == ["first", "second"]


def test_a_writer_that_waits_for_an_epoch_asks_less_and_less_often(stream: Stream) -> None:
    """While a store is away a scale may stand for a minute, and every writer of its stream waits then."""
    writer, now_s = stream.writer(), 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    writer._blocks.monotonic_s, writer._blocks.sleep = lambda: now_s, sleep
    writer.write(b"event", "key")
    stream.scale(10**9)
    before = stream.asked
    with pytest.raises(Unavailable, match="names it as open for 120 s"):
        writer.flush()
    assert stream.asked - before < 150
    stream.scale(0)
    writer.close()


def test_threads_share_a_writer(stream: Stream) -> None:
    """As they do those of Kafka and of Pravega's Java client: each event is there once, those of a thread in order."""
    threads, count, filling = 6, 300, "x" * 2_000

    def write(writer: EventWriter, thread: int) -> None:
        for number in range(count):
            writer.write(f"{thread}/{number}/{filling}".encode(), KEYS[thread])
            if number % 50 == thread:
                writer.flush()

    with stream.writer() as writer, ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(write, writer), range(threads)))
    found: dict[str, list[int]] = {}
    for event in stream.events(ONE[0]):
        thread, number, filled = event.split("/")
        assert filled == filling
        found.setdefault(thread, []).append(int(number))
    assert found == {str(thread): list(range(count)) for thread in range(threads)}


def test_a_writer_outlives_its_client_until_it_needs_a_controller(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So writers are to be closed before it: its connections are not theirs."""
    client = StreamClient("tcp://127.0.0.1:1")
    monkeypatch.setattr(client.controller, "current_segments", stream.current_segments)
    client.segments.endpoints.note(ONE[0].name, stream.store.endpoint)
    writer = EventWriter(client, "s", "t")
    client.close()
    writer.write(b"first")
    writer.flush()
    assert stream.events(ONE[0]) == ["first"]
    stream.store.before = lambda command: (
        c.WrongHost(command.request_id, ONE[0].name, "", "") if isinstance(command, c.AppendBlockEnd) else None
    )
    writer.write(b"second")
    with pytest.raises(InvalidArgument, match="is closed; make another one"):
        writer.close()
    assert not writer._blocks._channels
