"""Micro-batches with ``order=none`` that read a stream over its scalings, over the fake."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.source import stream_reader
from tests.unit.pravega_spark.source.queries import Query, numbered, reader, steps_of
from tests.unit.pravega_spark.streams import FakeStreams

EVENT_BYTES = 8 + 10


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def scaled_five_times(streams: FakeStreams) -> list[int]:
    """Twelve events in a stream of one, two, one, three, one and one segment; returns the segments by age."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 2))
    low, high = streams.scale("t", [0], [(0.0, 0.5), (0.5, 1.0)])
    streams.append("t", low, numbered(2, 4))
    streams.append("t", high, numbered(4, 5))
    (merged,) = streams.scale("t", [low, high], [(0.0, 1.0)])
    streams.append("t", merged, numbered(5, 7))
    thirds = streams.scale("t", [merged], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
    streams.append("t", thirds[0], numbered(7, 8))
    streams.append("t", thirds[2], numbered(8, 9))
    (empty,) = streams.scale("t", thirds, [(0.0, 1.0)])
    (last,) = streams.scale("t", [empty], [(0.0, 1.0)])
    streams.append("t", last, numbered(9, 12))
    return [0, low, high, merged, *thirds, empty, last]


def test_one_batch_reads_all(streams: FakeStreams) -> None:
    last = scaled_five_times(streams)[-1]
    query = Query(reader(streams, order="none"))
    assert steps_of(query) == [numbered(0, 12)]
    assert json.loads(query.log[0])["streams"] == {"s/t": {str(last): 3 * EVENT_BYTES}}
    streams.append("t", last, numbered(12, 13))
    assert steps_of(query) == [numbered(12, 13)]


def test_what_keeps_the_order_reads_a_batch_for_each(streams: FakeStreams) -> None:
    scaled_five_times(streams)
    assert [len(step) for step in steps_of(Query(reader(streams)))] == [2, 3, 2, 2, 3]


def test_available_now_ends_at_its_target(streams: FakeStreams) -> None:
    last = scaled_five_times(streams)[-1]
    query = Query(reader(streams, order="none"))
    query.source.prepareForTriggerAvailableNow()
    streams.append("t", last, numbered(12, 13))
    (later,) = streams.scale("t", [last], [(0.0, 1.0)])
    streams.append("t", later, numbered(13, 14))
    assert steps_of(query) == [numbered(0, 12)]
    query.source.prepareForTriggerAvailableNow()
    assert steps_of(query) == [numbered(12, 14)]


def test_a_batch_is_repeated_from_its_offsets(streams: FakeStreams) -> None:
    last = scaled_five_times(streams)[-1]
    query = Query(reader(streams, order="none"))
    start = query.source.initialOffset()
    rows = query.step()
    streams.append("t", last, numbered(12, 15))
    for order in ("none", "key"):
        again = Query(reader(streams, order=order))
        assert again.rows(start, json.loads(query.log[0])) == rows
        again.log = list(query.log)
        assert steps_of(again) == [numbered(12, 15)]


def test_limits_hold_over_scalings(streams: FakeStreams) -> None:
    """Two events and two of the next three; the third and two; two and two of three; the last."""
    scaled_five_times(streams)
    steps = steps_of(Query(reader(streams, order="none", max_events_per_trigger="4")))
    assert sorted(event for step in steps for event in step) == numbered(0, 12)
    assert [len(step) for step in steps] == [4, 3, 4, 1]


def test_limits_of_bytes_hold_over_scalings(streams: FakeStreams) -> None:
    """Each segment is read to the next boundary."""
    scaled_five_times(streams)
    steps = steps_of(Query(reader(streams, order="none", approx_bytes_per_trigger=str(4 * EVENT_BYTES))))
    assert sorted(event for step in steps for event in step) == numbered(0, 12)
    assert [len(step) for step in steps] == [5, 4, 3]


def test_a_batch_ends_where_a_segment_would_get_no_event(streams: FakeStreams) -> None:
    """A limit is exact but for the segments that a batch begins with, of which each gets an event."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 2))
    for index, item in enumerate(streams.scale("t", [0], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])):
        streams.append("t", item, numbered(2 + index, 3 + index))
    steps = steps_of(Query(reader(streams, order="none", max_events_per_trigger="4")))
    assert [len(step) for step in steps] == [2, 3]


def test_an_end_is_not_passed(streams: FakeStreams) -> None:
    merged = scaled_five_times(streams)[3]
    end = StreamCut("s", "t", {merged: EVENT_BYTES}).as_text()
    assert steps_of(Query(reader(streams, order="none", end_stream_cut=end))) == [numbered(0, 6)]


def test_a_batch_reads_over_a_limited_number_of_scalings(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "scalings_per_batch_max", 2)
    scaled_five_times(streams)
    steps = steps_of(Query(reader(streams, order="none")))
    assert [len(step) for step in steps] == [5, 4, 3]
    assert sorted(event for step in steps for event in step) == numbered(0, 12)


def test_events_behind_a_scaling_count_for_the_fewest(streams: FakeStreams) -> None:
    scaled_five_times(streams)
    query = Query(reader(streams, order="none", min_events_per_trigger="12"))
    assert steps_of(query) == [numbered(0, 12)]
    assert Query(reader(streams, order="none", min_events_per_trigger="13")).step() == []


def test_lag_after_a_batch_over_scalings(streams: FakeStreams) -> None:
    scaled_five_times(streams)
    query = Query(reader(streams, order="none", max_events_per_trigger="4"))
    lags = []
    while query.step() is not None:
        reported = query.source.reportLatestOffset()
        assert reported is not None and reported["lag_bytes"] == EVENT_BYTES * reported["lag_events"]
        lags.append(reported["lag_events"])
    assert lags == [8, 5, 1, 0]


@pytest.mark.parametrize("order", ["key", "none"])
def test_segments_that_were_passed_are_forgotten(streams: FakeStreams, order: str) -> None:
    """A query runs for months, over all scalings of its stream: what it knows is of what it has still to read."""
    streams.create("t")
    query = Query(reader(streams, order=order))
    current, sizes = 0, []
    for number in range(40):
        for _ in range(3):
            streams.append("t", current, numbered(number, number + 1))
            (current,) = streams.scale("t", [current], [(0.0, 1.0)])
        query.all()
        positions = query.source._streams["s/t"]
        sizes.append(len(positions._sealed) + len(positions._successors) + len(positions._counts))
    assert max(sizes) <= 12, sizes


@pytest.mark.parametrize("seed", range(20))
def test_every_event_once_whatever_happens(streams: FakeStreams, seed: int) -> None:
    """Random appends, scalings, limits, restarts and repeated batches."""
    chance = random.Random(seed)
    streams.create("t", 2)
    query = Query(reader(streams, order="none"))
    start = query.source.initialOffset()
    written, read = 0, []
    for _ in range(25):
        current = streams.gateway.current_segments("s", "t")
        for _ in range(chance.randrange(3)):
            amount = chance.randrange(1, 6)
            item = chance.choice(current).segment_id
            streams.append("t", item, numbered(written, written + amount))
            written += amount
        if chance.random() < 0.5:
            borders = sorted({0.0, 1.0, *(chance.random() for _ in range(chance.randrange(3)))})
            ranges = list(itertools.pairwise(borders))
            streams.scale("t", [item.segment_id for item in current], ranges)
        if chance.random() < 0.3:
            query.restart(reader(streams, order="none"))
        query.limit = ReadMaxRows(1) if chance.random() < 0.7 else None
        if query.limit is not None:
            option = chance.choice(["max_events_per_trigger", "approx_bytes_per_trigger"])
            query.restart(reader(streams, order="none", **{option: str(chance.randrange(1, 200))}))
        before = json.loads(query.log[-1]) if query.log else start
        rows = query.step() if chance.random() < 0.6 else None
        if rows is not None:
            again = Query(reader(streams, order="none"))
            assert again.rows(before, json.loads(query.log[-1])) == rows
            read += [event for partition in rows for event in partition]
    query.restart(reader(streams, order="none"))
    query.limit = None
    assert sorted([*read, *query.all()]) == numbered(0, written)
