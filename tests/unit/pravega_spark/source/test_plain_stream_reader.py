"""Micro-batches as Spark 4.0 and 4.1 ask for them, over the fake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pravega_common.errors import DataCorruption, InvalidArgument, UnsupportedOperation
from pravega_common.model.segments import SegmentOffsets
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.idle_pause import pause_max_s
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary())])


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def options(streams: FakeStreams, stream: str = "t", **given: str) -> dict[str, str]:
    named = {"controller": streams.controller, "scope": "s", "stream": stream, "order": "none"}
    return {"start_stream_cut": "earliest", **named, **given}


def reader(streams: FakeStreams, stream: str = "t", **given: str) -> PlainStreamReader:
    return PlainStreamReader(ReadOptions.parse(options(streams, stream, **given), Use.STREAM_READ), SCHEMA)


def rows(source: PlainStreamReader | StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    partitions = source.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    return sorted(
        event for partition in partitions for batch in source.read(partition) for event in batch.column(0).to_pylist()
    )


def step(source: PlainStreamReader, log: list[dict[str, Any]]) -> list[bytes]:
    """One trigger; ``log`` holds the ends of the batches."""
    start = log[-1] if log else source.initialOffset()
    end = json.loads(json.dumps(source.latestOffset()))
    if log and end == log[-1]:
        return []
    log.append(end)
    return rows(source, start, end)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, last)]


def test_batches_follow_each_other_over_a_scaling_and_a_restart(streams: FakeStreams) -> None:
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 3))
    streams.append("t", 1, numbered(3, 5))
    log: list[dict[str, Any]] = []
    source = reader(streams)
    assert step(source, log) == numbered(0, 5)
    assert step(source, log) == []
    streams.append("t", 0, numbered(5, 6))
    (merged,) = streams.scale("t", [0, 1], [(0.0, 1.0)])
    streams.append("t", merged, numbered(6, 9))
    assert step(reader(streams), log) == numbered(5, 9)
    streams.append("t", merged, numbered(9, 10))
    assert step(reader(streams), log) == numbered(9, 10)


def test_a_failed_first_batch_is_repeated_from_its_own_start(streams: FakeStreams) -> None:
    streams.create("t")
    source = reader(streams, start_stream_cut="latest")
    source.initialOffset()
    streams.append("t", 0, numbered(0, 3))
    end = source.latestOffset()
    streams.append("t", 0, numbered(3, 9))
    restarted = reader(streams, start_stream_cut="latest")
    assert rows(restarted, restarted.initialOffset(), end) == numbered(0, 3)


def refuse_what_goes_back(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a controller, which does not say what lies between a cut and one before it."""
    between = streams.gateway.segments_between

    def refusing(scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        if any(start[item] > end[item] for item in start.keys() & end.keys()):
            raise InvalidArgument(f"cut {end} lies before {start}")
        return between(scope, stream, start, end)

    monkeypatch.setattr(streams.gateway, "segments_between", refusing)


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_query_from_latest_begins_while_events_come(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, is_available_now: bool
) -> None:
    """Spark asks for the end of the first batch, and then for its start; a restart asks for the start again."""
    refuse_what_goes_back(streams, monkeypatch)
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    source = reader(streams, start_stream_cut="latest")
    log = [json.loads(json.dumps(source.latestOffset()))]
    streams.append("t", 0, numbered(3, 6))
    assert rows(source, source.initialOffset(), log[0]) == []
    restarted = reader(streams, start_stream_cut="latest")
    streams.append("t", 0, numbered(6, 9))
    if is_available_now:
        restarted.latestOffset()
    assert restarted.partitions(log[0], log[0]) == [], "what Spark has seen last, as it tells a restarted source"
    assert rows(restarted, restarted.initialOffset(), log[0]) == []
    assert step(restarted, log) == numbered(3, 9)


def first_batch(streams: FakeStreams, start: str) -> dict[str, Any]:
    """The end of a batch of three events, which is in the log and not done; three more came since."""
    streams.create("t")
    source = reader(streams, start_stream_cut=start)
    source.initialOffset()
    streams.append("t", 0, numbered(0, 3))
    end: dict[str, Any] = json.loads(json.dumps(source.latestOffset()))
    streams.append("t", 0, numbered(3, 6))
    return end


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_what_follows_a_repeated_first_batch(streams: FakeStreams, start: str) -> None:
    """The run that repeats it is asked for the initial offset again, which may be another one."""
    log = [first_batch(streams, start)]
    restarted = reader(streams, start_stream_cut=start)
    assert rows(restarted, restarted.initialOffset(), log[0]) == numbered(0, 3)
    streams.append("t", 0, numbered(6, 9))
    assert step(restarted, log) == numbered(3, 9)
    assert step(restarted, log) == []


def test_a_first_batch_from_earliest_says_where_it_began(streams: FakeStreams) -> None:
    """Spark asks for its end before its start: without that in the end, a restart began at a later head, unseen."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    source = reader(streams)
    log = [json.loads(json.dumps(source.latestOffset()))]
    assert rows(source, source.initialOffset(), log[0]) == numbered(0, 3)
    streams.gateway.truncate_stream("s", "t", {0: 14})
    restarted = reader(streams)
    assert restarted.partitions(log[0], log[0]) == []
    with pytest.raises(DataCorruption, match=r"s/t was lost .* from offset 0, the first offset available is 14"):
        rows(restarted, restarted.initialOffset(), log[0])


def test_a_first_batch_over_a_scaling_is_repeated_by_a_later_spark(streams: FakeStreams) -> None:
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    (second,) = streams.scale("t", [0], [(0.0, 1.0)])
    streams.append("t", second, numbered(3, 5))
    end = json.loads(json.dumps(reader(streams).latestOffset()))
    later = StreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA)
    assert rows(later, later.initialOffset(), end) == numbered(0, 5)
    streams.gateway.truncate_stream("s", "t", {0: 14})
    later = StreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA)
    with pytest.raises(DataCorruption, match=r"s/t was lost .* from offset 0, the first offset available is 14"):
        rows(later, later.initialOffset(), end)


def test_a_batch_of_available_now_goes_on_with_a_later_spark(streams: FakeStreams) -> None:
    """Where its run would have begun, had it been the first, is not where it begins."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    log: list[dict[str, Any]] = []
    step(reader(streams), log)
    streams.append("t", 0, numbered(3, 6))
    end = json.loads(json.dumps(reader(streams).latestOffset()))
    later = StreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA)
    assert rows(later, log[0], end) == numbered(3, 6)


def test_a_batch_that_begins_at_the_present_head_is_not_taken_for_the_first(streams: FakeStreams) -> None:
    """AvailableNow asks for the end before it tells of the last one, so that end has a start of its own: the head."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    log: list[dict[str, Any]] = []
    step(reader(streams), log)
    streams.append("t", 0, numbered(3, 6))
    source = reader(streams)
    log.append(json.loads(json.dumps(source.latestOffset())))
    assert source.partitions(log[0], log[0]) == []
    assert rows(source, log[0], log[1]) == numbered(3, 6)
    streams.gateway.truncate_stream("s", "t", {0: 42})
    restarted = reader(streams)
    restarted.latestOffset()
    assert restarted.partitions(log[1], log[1]) == []
    restarted.initialOffset()
    assert rows(restarted, log[0], log[1]) == numbered(3, 6)


def test_a_first_end_that_is_not_logged_at_once_has_its_start(streams: FakeStreams) -> None:
    streams.create("t")
    source = reader(streams, start_stream_cut="latest")
    source.initialOffset()
    for number in range(3):
        streams.append("t", 0, numbered(number, number + 1))
        end = source.latestOffset()
    restarted = reader(streams, start_stream_cut="latest")
    assert rows(restarted, restarted.initialOffset(), end) == numbered(0, 3)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_second_end_with_another_start_than_the_first_one_had(streams: FakeStreams, start: str) -> None:
    """As earlier versions wrote it after a first batch was repeated."""
    first = first_batch(streams, start)
    restarted = reader(streams, start_stream_cut=start)
    wrong = restarted.initialOffset()["streams"]
    streams.append("t", 0, numbered(6, 9))
    end = {"version": 2, "streams": {"s/t": streams.gateway.tail_cut("s", "t")}, "from": wrong}
    assert rows(restarted, first, end) == numbered(3, 9)
    assert rows(reader(streams, start_stream_cut=start), first, end) == numbered(3, 9)


def test_a_new_stream_begins_where_a_later_spark_began_it(streams: FakeStreams) -> None:
    """In a batch that was planned there, and is repeated here: what was lost since is not passed over."""
    for name in ("t", "u"):
        streams.create(name)
        streams.append(name, 0, numbered(0, 3))
    later = StreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA)
    first = later.latestOffset(later.initialOffset(), ReadAllAvailable())
    both = StreamReader(ReadOptions.parse(options(streams, stream="t,u"), Use.STREAM_READ), SCHEMA)
    end = both.latestOffset(first, ReadAllAvailable())
    assert rows(reader(streams, stream="t,u"), first, end) == numbered(0, 3)
    streams.gateway.truncate_stream("s", "u", {0: 14})
    with pytest.raises(DataCorruption, match=r"s/u was lost .* from offset 0"):
        rows(reader(streams, stream="t,u"), first, end)


def test_the_checkpoint_goes_on_with_a_later_spark(streams: FakeStreams) -> None:
    streams.create("t")
    streams.append("t", 0, numbered(0, 3))
    log: list[dict[str, Any]] = []
    source = reader(streams)
    step(source, log)
    streams.append("t", 0, numbered(3, 5))
    step(source, log)
    later = StreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA)
    assert rows(later, log[0], log[1]) == numbered(3, 5)
    streams.append("t", 0, numbered(5, 6))
    assert rows(later, log[1], later.latestOffset(log[1], ReadAllAvailable())) == numbered(5, 6)


def test_a_stream_created_anew_with_the_same_segments(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_what_goes_back(streams, monkeypatch)
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 3))
    log: list[dict[str, Any]] = [{"version": 2, "streams": {"s/t": {"0": 5000, "1": 0}}}]
    with pytest.raises(DataCorruption, match=r"s/t was deleted .* offset 5000, but the batch ends at 42; begin"):
        step(reader(streams), list(log))
    source = reader(streams, fail_on_data_loss="false")
    assert step(source, log) == numbered(0, 3)
    streams.append("t", 0, numbered(3, 1000))
    assert rows(reader(streams, fail_on_data_loss="false"), log[0], log[1]) == numbered(0, 3), "repeated"
    assert step(source, log) == numbered(3, 1000)


def test_a_stream_created_anew_with_a_segment_that_looks_as_before(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one tells that nothing of this stream was read; 20 lies inside an event."""
    refuse_what_goes_back(streams, monkeypatch)
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 3))
    streams.append("t", 1, numbered(3, 6))
    log: list[dict[str, Any]] = [{"version": 2, "streams": {"s/t": {"0": 5000, "1": 20}}}]
    assert step(reader(streams, fail_on_data_loss="false"), log) == numbered(0, 6)
    assert rows(reader(streams, fail_on_data_loss="false"), log[0], log[1]) == numbered(0, 6), "repeated"


def test_a_stream_created_anew_with_other_segments(streams: FakeStreams) -> None:
    """As a controller makes it; the batch that is repeated then is of the one before."""
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 4))
    log: list[dict[str, Any]] = []
    first = reader(streams)
    assert step(first, log) == numbered(0, 4)
    streams.append("t", 1, numbered(4, 5))
    assert step(first, log) == numbered(4, 5)
    streams.gateway.seal_stream("s", "t")
    streams.gateway.delete_stream("s", "t")
    streams.create("t", 3)
    streams.append("t", 3, numbered(5, 9))
    with pytest.raises(DataCorruption, match=r"s/t was deleted and made again.* it is not one of its segments"):
        step(first, list(log))
    going_on = reader(streams, fail_on_data_loss="false")
    assert rows(going_on, log[0], log[1]) == [], "repeated"
    assert step(going_on, log) == numbered(5, 9)
    assert step(going_on, log) == []


@pytest.mark.parametrize("is_repeated", [False, True])
def test_what_is_left_of_a_stream_whose_epochs_are_forgotten(streams: FakeStreams, is_repeated: bool) -> None:
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 2))
    log: list[dict[str, Any]] = []
    first = reader(streams)
    assert step(first, log) == numbered(0, 2)
    streams.append("t", 0, numbered(2, 3))
    streams.append("t", 1, numbered(3, 5))
    if is_repeated:
        log.append(json.loads(json.dumps(first.latestOffset())))
    (middle,) = streams.scale("t", [0], [(0.0, 0.5)])
    (last,) = streams.scale("t", [middle], [(0.0, 0.5)])
    streams.append("t", last, numbered(5, 7))
    streams.gateway.truncate_stream("s", "t", {1: 0, last: 0})
    streams.gateway.forget_epochs("s", "t", 2)
    with pytest.raises(DataCorruption, match=r"s/t was lost before it was read: segment 0\.#epoch\.0 from offset"):
        step(first, list(log[:1]))
    going_on = reader(streams, fail_on_data_loss="false")
    if is_repeated:
        assert rows(going_on, log[0], log[1]) == numbered(3, 5)
    assert step(going_on, log) == numbered(5 if is_repeated else 3, 7)


@pytest.mark.parametrize("name", ["max_events_per_trigger", "approx_bytes_per_trigger"])
def test_limits_are_refused(streams: FakeStreams, name: str) -> None:
    streams.create("t")
    with pytest.raises(UnsupportedOperation, match=rf"option '{name}' of a streaming read needs Spark 4\.2"):
        reader(streams, **{name: "10"})


def test_the_order_of_keys_is_refused(streams: FakeStreams) -> None:
    streams.create("t")
    with pytest.raises(UnsupportedOperation, match=r"order of a key over a scaling needs Spark 4\.2.*order=none"):
        reader(streams, order="key")


def test_a_stream_that_is_not_named_any_more(streams: FakeStreams) -> None:
    for name in ("t", "u"):
        streams.create(name)
        streams.append(name, 0, numbered(0, 2))
    log: list[dict[str, Any]] = []
    assert len(step(reader(streams, stream="t,u"), log)) == 4
    streams.append("t", 0, numbered(2, 3))
    with pytest.raises(InvalidArgument, match=r"s/u, which the option 'stream' does not name"):
        step(reader(streams), log)


def test_small_ranges_share_a_partition(streams: FakeStreams) -> None:
    streams.create("t", 3)
    for segment in range(3):
        streams.append("t", segment, numbered(segment, segment + 1))
    for packed_bytes, partitions in (("65536", 1), ("0", 3)):
        source = reader(streams, packed_bytes=packed_bytes)
        start, end = source.initialOffset(), source.latestOffset()
        assert len(source.partitions(start, end)) == partitions
        assert rows(source, start, end) == numbered(0, 3)


def test_a_source_that_is_idle_looks_less_often(streams: FakeStreams) -> None:
    """Spark asks every 10 ms, and each look asks the controller: a query that had nothing to do took a third of a core.

    A look is put off and not left out: what was written before it is found.
    """
    clock = {"now": 0.0}
    slept: list[float] = []

    def now_s() -> float:
        clock["now"] += 0.005  # A look takes 10 ms, as it asks once more on its way.
        return clock["now"]

    streams.create("t")
    source = PlainStreamReader(ReadOptions.parse(options(streams), Use.STREAM_READ), SCHEMA, now_s, slept.append)
    log: list[dict[str, Any]] = []
    assert step(source, log) == []
    assert step(source, log) == []
    assert slept == [], "nothing is known of how long nothing came"
    streams.append("t", 0, numbered(0, 3))
    assert step(source, log) == numbered(0, 3)
    assert slept == [pytest.approx(pause_max_s - 0.005)]
    streams.append("t", 0, numbered(3, 5))
    assert step(source, log) == numbered(3, 5)
    assert len(slept) == 1, "what was found is followed at once"
