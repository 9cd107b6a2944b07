"""Tests that bursts end where the input pauses, and that readers print the wanted events and no more."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_common.errors import DataCorruption
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id, segment_name
from pravega_spark.commands.event_formats import Format, Parser, printer_of
from pravega_spark.commands.event_pipe import EventPrinter, poll_time_min_s, write_pipe
from pravega_streams.event.event_writer import frame_event
from tests.support.fakes.stream_gateway import FakeGateway


class Written:
    """A writer that notes the events it is to make durable, burst by burst."""

    def __init__(self) -> None:
        self.bursts: list[list[bytes]] = []
        self.durable: list[int] = []
        self.arrived = threading.Event()

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.bursts.append([event for batch in batches for event in batch.column("event").to_pylist()])

    def note(self, count: int) -> None:
        self.durable.append(count)
        self.arrived.set()


def test_what_comes_before_a_pause_is_durable_before_the_end() -> None:
    reading, writing = os.pipe()
    written = Written()
    thread = threading.Thread(target=write_pipe, args=(reading, Parser(Format.LINES), written.write, written.note))
    thread.start()
    try:
        os.write(writing, b"one\ntwo\nthr")
        assert written.arrived.wait(10)
        assert written.bursts[0] == [b"one", b"two"]
        os.write(writing, b"ee\nfour")
    finally:
        os.close(writing)
        thread.join(10)
        os.close(reading)
    assert [event for burst in written.bursts for event in burst] == [b"one", b"two", b"three", b"four"]
    assert written.durable[-1] == 4


@pytest.fixture
def gateway(tmp_path: Path) -> FakeGateway:
    made = FakeGateway(str(tmp_path))
    made.create_scope("s")
    made.create_stream("s", "t", StreamConfiguration(ScalingPolicy.fixed(1)))
    return made


def fill(gateway: FakeGateway, identifier: int, *events: str) -> None:
    writer = gateway.open_writer(segment_name("s", "t", identifier))
    for event in events:
        writer.write(frame_event(event.encode()), 1)
    writer.flush()


class Reading:
    def __init__(self, gateway: FakeGateway, events_max: int = 0) -> None:
        self.output = io.BytesIO()
        self.gateway = gateway
        self.reader = EventPrinter(gateway, "s", "t", printer_of(Format.LINES), self.output.write, events_max)

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().decode().splitlines()


def test_a_range_is_read_over_scale_events(gateway: FakeGateway) -> None:
    fill(gateway, 0, "a", "b", "c")
    gateway.scale_stream("s", "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    fill(gateway, segment_id(1, 1), "d")
    fill(gateway, segment_id(2, 1), "e", "f")
    whole = Reading(gateway)
    whole.reader.read({0: 0}, gateway.tail_cut("s", "t"))
    assert whole.lines == ["a", "b", "c", "d", "e", "f"]
    some = Reading(gateway)
    some.reader.read({0: 9}, {segment_id(1, 1): 9, segment_id(2, 1): 9})
    assert some.lines == ["b", "c", "d", "e"]
    few = Reading(gateway, events_max=4)
    few.reader.read({0: 0}, gateway.tail_cut("s", "t"))
    assert (few.lines, few.reader.events) == (["a", "b", "c", "d"], 4)


def test_an_end_in_the_middle_of_an_event_is_an_error(gateway: FakeGateway) -> None:
    fill(gateway, 0, "a", "b")
    with pytest.raises(DataCorruption, match="offset 15 is not the end of an event"):
        Reading(gateway).reader.read({0: 0}, {0: 15})


def test_lost_data_is_told_with_what_this_command_can_do(gateway: FakeGateway) -> None:
    """Option ``fail_on_data_loss`` is one of queries."""
    fill(gateway, 0, "a", "b")
    gateway.truncate_stream("s", "t", gateway.tail_cut("s", "t"))
    told = r"offset available is 18; begin at the head \(--from earliest\), or at the text that pravega-spark .* s/t"
    with pytest.raises(DataCorruption, match=told) as lost:
        Reading(gateway).reader.read({0: 0}, {0: 18})
    assert "fail_on_data_loss" not in str(lost.value)
    with pytest.raises(DataCorruption, match=told):
        Reading(gateway).reader.follow({0: 0})
    with pytest.raises(DataCorruption, match=r"was deleted and made again, .*; begin at the head") as lost:
        Reading(gateway).reader.read({0: 18}, {0: 99})
    assert "fail_on_data_loss" not in str(lost.value)


def test_following_goes_on_over_scale_events_until_the_seal(gateway: FakeGateway) -> None:
    fill(gateway, 0, "a")
    reading = Reading(gateway)
    steps: list[Callable[[], object]] = [
        lambda: fill(gateway, 0, "b", "c"),
        lambda: gateway.scale_stream("s", "t", [0], [(0.0, 1.0)]),
        lambda: fill(gateway, segment_id(1, 1), "d"),
        lambda: gateway.seal_stream("s", "t"),
    ]

    def meanwhile(delay_s: float) -> None:
        steps.pop(0)()

    reading.reader.follow({0: 0}, sleep=meanwhile)
    assert reading.lines == ["a", "b", "c", "d"]


def test_following_waits_for_a_store_that_tells(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that tells of bytes that are not there is asked again behind a pause."""
    slept: list[float] = []
    watched: list[Mapping[str, int]] = []
    steps: list[Callable[[], object]] = [
        lambda: fill(gateway, 0, "b"),
        lambda: None,
        lambda: gateway.seal_stream("s", "t"),
    ]

    class Telling:
        def begin(self, offsets: Mapping[str, int]) -> bool:
            watched.append(offsets)
            return True

        def wait(self, wait_s: float) -> bool:
            steps.pop(0)()
            return True

    monkeypatch.setattr(gateway, "open_watch", Telling)
    fill(gateway, 0, "a")
    reading = Reading(gateway)
    reading.reader.follow({0: 0}, sleep=slept.append)
    assert reading.lines == ["a", "b"]
    assert slept == [poll_time_min_s]
    assert watched == [{segment_name("s", "t", 0): offset} for offset in (9, 18, 18)]


def test_following_stops_after_the_number_wanted(gateway: FakeGateway) -> None:
    fill(gateway, 0, "a", "b", "c")
    reading = Reading(gateway, events_max=2)
    reading.reader.follow({0: 0})
    assert reading.lines == ["a", "b"]
