"""Runs the official connector's check list: a query under fifty random changes."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import pytest

from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.spark.batches import Batches
from tests.spark.streams import Streams

steps = 50
segments_max = 6
events_per_step_max = 30
keys = 10
limits: tuple[dict[str, int], ...] = ({}, {"approx_bytes_per_trigger": 200}, {"max_events_per_trigger": 7})


class World:
    """Two streams under change, and one query over both."""

    def __init__(self, streams: Streams, client: StreamClient, seed: int) -> None:
        self._streams = streams
        self._random = random.Random(seed)
        self._client = client
        self._names = ("one", "two")
        for name in self._names:
            streams.create(name)
        self._written = 0
        options = self._random.choice(limits)
        self._read = Batches(streams, streams.stream(",".join(self._names), **options).load())
        self._runs = False
        self.history: list[str] = [str(options)]

    def step(self) -> None:
        change = self._random.choices((self._write, self._scale, self._turn, self._wait), (10, 4, 4, 1))[0]
        change()

    def _write(self) -> None:
        name, count = self._random.choice(self._names), self._random.randint(1, events_per_step_max)
        self.history.append(f"{count} events from {self._written} to {name}")
        with EventWriter(self._client, self._streams.scope, name) as writer:
            for number in range(self._written, self._written + count):
                writer.write(f"{number:06}".encode(), f"k{number % keys}")
        self._written += count

    def _scale(self) -> None:
        name, count = self._random.choice(self._names), self._random.randint(1, segments_max)
        self.history.append(f"{name} to {count} segments")
        gateway, scope = self._streams.gateway, self._streams.scope
        present = [item.segment_id for item in gateway.current_segments(scope, name)]
        bounds = [0.0, *sorted(self._random.sample([index / 100 for index in range(1, 100)], count - 1)), 1.0]
        gateway.scale_stream(scope, name, present, list(itertools.pairwise(bounds)))

    def _turn(self) -> None:
        """The query on or off."""
        self.history.append("stop" if self._runs else "start")
        if self._runs:
            self._read.stop()
        else:
            self._read.start()
        self._runs = not self._runs

    def _wait(self) -> None:
        if self._runs:
            self.history.append("wait")
            self._read.catch_up()
            self._read.expect(range(self._written))

    def finish(self) -> None:
        """All is read, each event once, and those of a key in one stream in their order."""
        if not self._runs:
            self._turn()
        self._read.catch_up()
        self._read.expect(range(self._written))
        of_key: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in self._read.rows:
            number = int(bytes(row.event))
            of_key[row.stream, number % keys].append(number)
        assert all(numbers == sorted(numbers) for numbers in of_key.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_event_once_whatever_happens(streams: Streams, seed: int) -> None:
    with StreamClient(streams.controller) as client:
        world = World(streams, client, seed)
        try:
            for _ in range(steps):
                world.step()
            world.finish()
        except BaseException:
            print("\n".join(world.history))
            raise
