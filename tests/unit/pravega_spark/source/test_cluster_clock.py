"""The end_time of a streaming read is one by the clock of the cluster, whatever that of the driver says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.errors import Unavailable
from pravega_spark.gateway.provisioning import forget_provisioned
from tests.unit.pravega_spark.source.queries import Query, numbered, reader
from tests.unit.pravega_spark.streams import FakeStreams

start_ms = 1_000_000
end_ms = start_ms + 12_000


class World:
    """A store with a stream of two events, and a driver whose clock is another one."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        forget_provisioned()
        self.streams = FakeStreams(directory)
        self.cluster_ms = start_ms
        self.driver_ahead_ms = 0
        self.tells_time = True
        self.is_away = False
        self.asked = 0
        gateway = self.streams.gateway
        monkeypatch.setattr(gateway, "now_ms", lambda: self.cluster_ms)
        monkeypatch.setattr(gateway, "cluster_time_ms", self._told)
        monkeypatch.setattr(
            "pravega_spark.source.stream_reader.time.time_ns",
            lambda: (self.cluster_ms + self.driver_ahead_ms) * 1_000_000,
        )
        self.streams.create("t")
        self.write(0, 2)

    def _told(self) -> int | None:
        self.asked += 1
        if self.is_away:
            raise Unavailable("no controller")
        return self.cluster_ms if self.tells_time else None

    def write(self, first: int, last: int) -> None:
        self.streams.append("t", 0, numbered(first, last))

    def query(self) -> Query:
        return Query(reader(self.streams, end_time=str(end_ms)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.mark.parametrize("ahead_s", [0, 30, -30, 86_400])
def test_all_that_the_cluster_takes_before_the_time_is_read_and_nothing_else(world: World, ahead_s: int) -> None:
    world.driver_ahead_ms = ahead_s * 1000
    query = world.query()
    assert query.all() == numbered(0, 2)
    world.cluster_ms += 11_000
    world.write(2, 4)
    assert query.all() == numbered(2, 4)
    world.write(4, 5)
    world.cluster_ms += 2_000
    world.write(5, 9)
    # The edge of a range by time may have one stretch of the index more, which is one event here.
    assert query.all() == numbered(4, 6)
    world.cluster_ms += 10_000
    assert query.all() == []


def test_a_clock_that_is_set_while_the_query_runs_settles_nothing(world: World) -> None:
    query = world.query()
    assert query.all() == numbered(0, 2)
    world.driver_ahead_ms = 30_000
    assert query.all() == []
    world.write(2, 4)
    assert query.all() == numbered(2, 4)
    world.cluster_ms = end_ms + 20_000
    world.write(4, 9)
    assert query.all() == numbered(4, 5)


def test_the_cluster_is_asked_at_first_and_before_the_end_is_settled(world: World) -> None:
    query = world.query()
    for _ in range(5):
        query.step()
        world.cluster_ms += 3_000
    assert world.asked == 1
    world.cluster_ms = end_ms + 4_999
    query.step()
    assert world.asked == 1
    world.cluster_ms += 1
    for _ in range(5):
        query.step()
    assert world.asked == 2


def test_a_read_without_an_end_time_does_not_ask(world: World) -> None:
    assert Query(reader(world.streams)).all() == numbered(0, 2)
    assert world.asked == 0


def test_where_the_cluster_does_not_tell_its_time_the_drivers_counts(world: World) -> None:
    world.tells_time = False
    world.driver_ahead_ms = 30_000
    query = world.query()
    assert query.all() == numbered(0, 2)
    world.write(2, 4)
    assert query.all() == []


def test_a_cluster_that_cannot_be_asked_is_an_error_of_the_look(world: World) -> None:
    query = world.query()
    query.source.initialOffset()
    world.is_away = True
    with pytest.raises(Unavailable, match="no controller"):
        query.step()
    world.is_away = False
    assert query.all() == numbered(0, 2)
    world.cluster_ms = end_ms + 6_000
    world.is_away = True
    with pytest.raises(Unavailable, match="no controller"):
        query.step()
    world.is_away = False
    world.write(2, 4)
    assert query.all() == numbered(2, 3)
