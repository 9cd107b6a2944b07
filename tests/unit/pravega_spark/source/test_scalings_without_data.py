"""A position that moves over a scaling where nothing is to be read, over the fake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import forget_provisioned
from tests.unit.pravega_spark.source.queries import Query, numbered, reader, steps_of
from tests.unit.pravega_spark.streams import FakeStreams

EVENT_BYTES = 8 + 10

both_orders = pytest.mark.parametrize("order", ["key", "none"])


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def all_read(streams: FakeStreams, **given: str) -> tuple[Query, int]:
    """A query that has read all, and the segment that then took the place of its own."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 4))
    query = Query(reader(streams, **given))
    assert query.all() == numbered(0, 4)
    (second,) = streams.scale("t", [0], [(0.0, 1.0)])
    return query, second


def position(query: Query, stream: str = "s/t") -> dict[str, int]:
    found: dict[str, int] = json.loads(query.log[-1])["streams"][stream]
    return found


@both_orders
@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_read_is_not_missed_when_it_is_truncated(streams: FakeStreams, order: str, is_restarted: bool) -> None:
    query, second = all_read(streams, order=order)
    assert query.step() == []
    streams.gateway.truncate_stream("s", "t", {second: 0})
    if is_restarted:
        query.restart(reader(streams, order=order))
    assert query.step() is None
    streams.append("t", second, numbered(4, 6))
    assert query.all() == numbered(4, 6)


@both_orders
def test_it_is_one_batch_that_can_be_repeated(streams: FakeStreams, order: str) -> None:
    query, second = all_read(streams, order=order)
    (third,) = streams.scale("t", [second], [(0.0, 1.0)])
    assert query.step() == []
    assert position(query) == {str(third): 0}
    assert [query.step() for _ in range(3)] == [None] * 3
    streams.append("t", third, numbered(4, 6))
    again = Query(reader(streams, order=order))
    start, end = (json.loads(offset) for offset in query.log[-2:])
    assert again.source.partitions(start, end) == []
    assert query.all() == numbered(4, 6)


@both_orders
def test_a_merge_waits_for_the_segment_that_is_not_read(streams: FakeStreams, order: str) -> None:
    streams.create("t", 2)
    query = Query(reader(streams, order=order, min_events_per_trigger="9"))
    assert query.step() == []
    streams.append("t", 1, numbered(0, 3))
    (merged,) = streams.scale("t", [0, 1], [(0.0, 1.0)])
    assert query.step() is None, "few events wait, and nothing moves"
    query.limit = ReadAllAvailable()
    assert query.step() == [numbered(0, 3)]
    assert position(query) == {str(merged): 0}


@both_orders
def test_available_now_ends(streams: FakeStreams, order: str) -> None:
    query, second = all_read(streams, order=order)
    query.source.prepareForTriggerAvailableNow()
    (third,) = streams.scale("t", [second], [(0.0, 1.0)])
    streams.append("t", third, numbered(4, 6))
    assert steps_of(query) == [[]]
    query.source.prepareForTriggerAvailableNow()
    assert steps_of(query) == [numbered(4, 6)]


@both_orders
def test_once_takes_what_lies_behind_the_scaling(streams: FakeStreams, order: str) -> None:
    query, second = all_read(streams, order=order)
    streams.append("t", second, numbered(4, 6))
    query.limit = ReadAllAvailable()
    assert query.step() == [numbered(4, 6)]


@both_orders
def test_few_events_behind_a_scaling_are_held_back(streams: FakeStreams, order: str) -> None:
    query, second = all_read(streams, order=order)
    query.restart(reader(streams, order=order, min_events_per_trigger="3"))
    streams.append("t", second, numbered(4, 6))
    assert query.step() == []
    assert query.step() is None
    streams.append("t", second, numbered(6, 7))
    assert query.step() == [numbered(4, 7)]


def test_several_streams(streams: FakeStreams) -> None:
    for name in ("t", "u"):
        streams.create(name)
        streams.append(name, 0, numbered(0, 2))
    query = Query(reader(streams, "t,u"))
    assert len(query.all()) == 4
    (second,) = streams.scale("u", [0], [(0.0, 1.0)])
    assert query.step() == []
    assert (position(query), position(query, "s/u")) == ({"0": 2 * EVENT_BYTES}, {str(second): 0})
    assert query.step() is None
    streams.append("t", 0, numbered(2, 3))
    assert query.step() == [numbered(2, 3)]


def test_an_end_is_not_passed(streams: FakeStreams) -> None:
    query, second = all_read(streams)
    streams.append("t", second, numbered(4, 6))
    end = StreamCut("s", "t", {0: 4 * EVENT_BYTES}).as_text()
    query.restart(reader(streams, end_stream_cut=end))
    assert query.step() is None
    query.restart(reader(streams))
    assert query.all() == numbered(4, 6)


def test_lost_data_is_skipped_once(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    query, second = all_read(streams)
    streams.append("t", second, numbered(4, 6))
    streams.gateway.truncate_stream("s", "t", {second: 2 * EVENT_BYTES})
    query.restart(reader(streams, fail_on_data_loss="false"))
    assert query.all() == []
    assert position(query) == {str(second): 2 * EVENT_BYTES}
    caplog.clear()
    assert query.step() is None and not caplog.text
    query.restart(reader(streams))
    streams.append("t", second, numbered(6, 8))
    assert query.all() == numbered(6, 8)


def test_a_subscriber_releases_the_segment_that_was_read(streams: FakeStreams) -> None:
    query, second = all_read(streams, subscriber="mine")
    assert query.step() == []
    query.source.commit(json.loads(query.log[-1]))
    assert streams.gateway.released("s", "t") == {"s/mine": {second: 0}}
