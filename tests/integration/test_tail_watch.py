"""Checks that stores tell a watch of bytes at the end of a segment, and of segments that end or go."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Timer

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import offsets_by_name, segment_name
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.segment.tail_watch import TailWatch, segments_watched_max
from tests.support.cluster import cluster, running_cluster

__all__ = ["cluster"]

LONG_S = 30.0
"""Until a wait ends that nothing ended before."""
SHORT_S = 0.2
EVENT = struct.pack(">ii", 0, 5) + b"event"


class World:
    """A stream of two segments, and a watch of their ends, from a client of its own."""

    def __init__(self, controller: str) -> None:
        self.gateway = ServiceGateway(controller)
        self.watching = ServiceGateway(controller)
        self.scope = f"scope-{uuid.uuid4().hex[:8]}"
        self.gateway.create_scope(self.scope)
        self.gateway.create_stream(self.scope, "t", StreamConfiguration(ScalingPolicy.fixed(2)))
        self.watch: TailWatch = self.watching.open_watch()

    @property
    def tails(self) -> dict[str, int]:
        return offsets_by_name(self.scope, "t", self.gateway.tail_cut(self.scope, "t"))

    def append(self, segment_id: int = 1) -> None:
        writer = self.gateway.open_writer(segment_name(self.scope, "t", segment_id))
        writer.write(memoryview(EVENT), 1)
        writer.flush()
        writer.close()

    def is_told_of(self, change: Callable[[], object]) -> bool:
        """Whether a change that is made while the watch waits ends its wait."""
        timer = Timer(SHORT_S, change)
        timer.start()
        try:
            return self.watch.wait(LONG_S)
        finally:
            timer.join()

    def close(self) -> None:
        self.watch.close()
        self.watching.close()
        self.gateway.close()


@pytest.fixture
def world(cluster: StandaloneProcess) -> Iterator[World]:
    made = World(cluster.controller_uri)
    yield made
    made.close()


def test_an_append_ends_the_wait(world: World) -> None:
    assert world.watch.begin(world.tails)
    assert not world.watch.wait(SHORT_S)
    assert world.is_told_of(world.append)


def test_what_came_before_ends_the_wait_at_once(world: World) -> None:
    tails = world.tails
    world.append()
    assert world.watch.begin(tails)
    assert world.watch.wait(LONG_S)


def test_each_append_is_told_of(world: World) -> None:
    for segment_id in (0, 1, 0):
        assert world.watch.begin(world.tails)
        assert not world.watch.wait(SHORT_S)
        assert world.is_told_of(partial(world.append, segment_id))


def test_a_watch_goes_on_without_asking_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tails = world.tails
    assert world.watch.begin(tails)
    assert not world.watch.wait(SHORT_S)
    monkeypatch.setattr(TailWatch, "_ask", lambda *_: pytest.fail("asks again"))
    assert world.watch.begin(tails)
    assert not world.watch.wait(SHORT_S)


def test_a_scaling_and_a_seal_end_the_wait(world: World) -> None:
    assert world.watch.begin(world.tails)
    assert world.is_told_of(lambda: world.gateway.scale_stream(world.scope, "t", [0], [(0.0, 0.25), (0.25, 0.5)]))
    assert world.watch.begin(world.tails)
    assert world.is_told_of(lambda: world.gateway.seal_stream(world.scope, "t"))


def test_a_segment_that_is_not_there_ends_the_wait(world: World) -> None:
    assert world.watch.begin({segment_name(world.scope, "t", 7): 0})
    assert world.watch.wait(LONG_S)


def test_too_many_segments_are_not_watched(world: World) -> None:
    many = {segment_name(world.scope, "t", item): 0 for item in range(segments_watched_max + 1)}
    assert not world.watch.begin(many)
    assert not world.watch.begin({})
    assert world.watch.begin(world.tails), "it can be used behind a refusal"


def test_a_store_that_ends_ends_the_wait(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "ends") as cluster:
        world = World(cluster.controller_uri)
        assert world.watch.begin(world.tails)
        assert world.is_told_of(cluster.stop)
        assert not world.watch.begin({segment_name(world.scope, "t", 0): 0}), "nobody is there to ask"
        world.close()
