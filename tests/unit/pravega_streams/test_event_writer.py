"""Runs the event writer over scales against a store in memory over a real socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import Unavailable
from pravega_common.hashing import position_of_key
from pravega_common.model.segments import SegmentRange
from pravega_common.names import segment_id
from pravega_streams.event import event_writer
from pravega_streams.event.event_writer import EventWriter
from tests.support.fakes.wire_store import FakeSegment, FakeStore

ONE = (SegmentRange("s", "t", segment_id(0, 0), 0.0, 1.0),)
TWO = (SegmentRange("s", "t", segment_id(1, 1), 0.0, 0.5), SegmentRange("s", "t", segment_id(2, 1), 0.5, 1.0))
KEYS = [f"key-{number}" for number in range(20)]


class Stream:
    """A stream of one segment; ``scale`` seals it, and its successors are known after some more questions."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.asked = 0
        self._known_at = -1
        for item in (*ONE, *TWO):
            self.store.segments[item.name] = FakeSegment()

    def scale(self, known_after: int) -> None:
        self.store.segments[ONE[0].name].sealed = True
        self._known_at = self.asked + known_after

    def current_segments(self, scope: str, stream: str) -> tuple[SegmentRange, ...]:
        self.asked += 1
        return TWO if 0 <= self._known_at < self.asked else ONE

    def writer(self) -> EventWriter:
        client: Any = SimpleNamespace(controller=self, segments=SimpleNamespace(endpoints=self.store))
        return EventWriter(client, "s", "t")

    def events(self, item: SegmentRange) -> list[str]:
        data, found, position = bytes(self.store.segments[item.name].data), [], 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position + 4)
            found.append(data[position + 8 : position + 8 + length].decode())
            position += 8 + length
        return found


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
