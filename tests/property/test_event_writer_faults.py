"""Checks that an event writer writes each event once, in order, over lost connections, late blocks and scales."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pravega_common.wire import commands as c
from pravega_streams.event import block_writer, event_writer, write_budget
from tests.unit.pravega_streams.test_event_writer import MERGED, ONE, TWO, Stream

KEYS = [f"key-{number}" for number in range(6)]
EVENTS = 120
SEEDS = 60


@dataclass(frozen=True)
class Late:
    """A block of a lost connection that the log takes later, if its segment is open and has nothing newer."""

    segment: str
    writer_id: bytes
    before: int
    command: c.AppendBlockEnd


class Faults:
    """Drops connections before and behind what they bring, holds blocks back, and scales the stream twice."""

    def __init__(self, stream: Stream, chance: random.Random) -> None:
        self.late: list[Late] = []
        self.scales = [TWO, MERGED]
        self._stream = stream
        self._segments = stream.store.segments
        self._chance = chance
        self._often = chance.choice([0.05, 0.2, 0.4])
        self._names: dict[bytes, str] = {}
        self._expected: dict[bytes, int] = {}
        """The number that the segment of each writer has before the next block of its connection."""

    def before(self, command: c.Command) -> str | None:
        if isinstance(command, c.SetupAppend):
            self._names[command.writer_id] = command.segment
            self._expected[command.writer_id] = self._number(command.segment, command.writer_id)
            return self._one_of(("close", self._often / 4), ("close after", self._often / 4))
        if isinstance(command, c.AppendBlockEnd):
            return self._before_block(command)
        return None

    def _before_block(self, command: c.AppendBlockEnd) -> str | None:
        if self._chance.random() < 0.3:
            self._take_late()
        if self.scales and self._chance.random() < 0.03:
            self._take_late()
            self._stream.scale(self._chance.randrange(4), self.scales.pop(0))
        fate = self._one_of(("close", self._often / 2), ("close after", self._often / 2))
        writer_id = command.writer_id
        if not self._is_next(writer_id):
            return fate
        if fate == "close":
            if all(one.writer_id != writer_id for one in self.late):
                self.late.append(Late(self._names[writer_id], writer_id, self._expected[writer_id], command))
        elif fate is None:
            self._expected[writer_id] = command.last_event_number
        return fate

    def _is_next(self, writer_id: bytes) -> bool:
        """Whether the segment takes the next block of a writer's connection."""
        segment = self._names[writer_id]
        is_open = not self._segments[segment].sealed
        return is_open and self._number(segment, writer_id) == self._expected[writer_id]

    def _one_of(self, *fates: tuple[str, float]) -> str | None:
        drawn = self._chance.random()
        for fate, share in fates:
            if drawn < share:
                return fate
            drawn -= share
        return None

    def _take_late(self) -> None:
        for one in self.late:
            segment = self._segments[one.segment]
            if not segment.sealed and self._number(one.segment, one.writer_id) == one.before:
                segment.numbers[one.writer_id] = one.command.last_event_number
                segment.data += one.command.data
        self.late.clear()

    def _number(self, segment: str, writer_id: bytes) -> int:
        return self._segments[segment].numbers.get(writer_id, c.NULL_ATTRIBUTE_VALUE)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """One whose writer has small blocks and no long pauses."""
    for module in (block_writer, write_budget):
        monkeypatch.setattr(module, "block_bytes_max", 40)
    monkeypatch.setattr(event_writer, "epoch_wait_s", 0.001)
    monkeypatch.setattr(block_writer, "retry_delay_min_s", 0.001)
    monkeypatch.setattr(block_writer, "retry_delay_max_s", 0.01)
    made = Stream()
    yield made
    made.store.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_event_is_written_once_in_the_order_of_its_key(stream: Stream, seed: int) -> None:
    chance = random.Random(seed)
    stream.store.before = Faults(stream, chance).before
    written: dict[str, list[str]] = {key: [] for key in KEYS}
    with stream.writer() as writer:
        for number in range(EVENTS):
            key = chance.choice(KEYS)
            written[key].append(f"{key}/{number}")
            writer.write(written[key][-1].encode(), key)
            if chance.random() < 0.1:
                writer.flush()
    found = [event for item in (*ONE, *TWO, *MERGED) for event in stream.events(item)]
    assert {key: [event for event in found if event.startswith(f"{key}/")] for key in KEYS} == written
