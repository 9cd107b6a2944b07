"""Micro-batches of a pattern's streams as Spark 4.0 and 4.1 ask for them, over the fake: streams come and go."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pravega_common.errors import DataCorruption, InvalidArgument, StreamNotFound
from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary())])


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def options(streams: FakeStreams, **given: str) -> ReadOptions:
    named = {"controller": streams.controller, "scope": "s", "stream_pattern": "a.*", "order": "none"}
    start = {} if "start_time" in given else {"start_stream_cut": "earliest"}
    return ReadOptions.parse({**named, **start, "stream_discovery_interval": "1s", **given}, Use.STREAM_READ)


def reader(streams: FakeStreams, **given: str) -> PlainStreamReader:
    """It looks for streams whenever it is asked, and its waits take no time."""
    return PlainStreamReader(options(streams, **given), SCHEMA, hurried_clock(), lambda seconds: None)


def hurried_clock() -> Callable[[], float]:
    return itertools.count(0.0, 10.0).__next__


def add(streams: FakeStreams, stream: str, *events: bytes) -> None:
    """Append to a stream, which is created if it is missing."""
    if not streams.gateway.stream_exists("s", stream):
        streams.create(stream)
    streams.append(stream, 0, events)


def delete(streams: FakeStreams, stream: str) -> None:
    streams.gateway.seal_stream("s", stream)
    streams.gateway.delete_stream("s", stream)


def copy_of(offset: dict[str, Any]) -> dict[str, Any]:
    """The offset as the log gives it back."""
    copied: dict[str, Any] = json.loads(json.dumps(offset))
    return copied


def rows(source: PlainStreamReader | StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    partitions = source.partitions(copy_of(start), copy_of(end))
    return sorted(
        event for partition in partitions for batch in source.read(partition) for event in batch.column(0).to_pylist()
    )


def first_repeated(source: PlainStreamReader, end: dict[str, Any]) -> list[bytes]:
    """A first batch in a run that finds it in the log, and not done."""
    assert source.partitions(copy_of(end), copy_of(end)) == []
    return rows(source, source.initialOffset(), end)


def gone_after_its_end(streams: FakeStreams) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two ends of a batch of two streams, of which the first one is deleted since."""
    for name in ("a1", "a2"):
        add(streams, name, b"x")
    source = reader(streams)
    start = copy_of(source.latestOffset())
    rows(source, source.initialOffset(), start)
    for name in ("a1", "a2"):
        add(streams, name, b"y")
    end = copy_of(source.latestOffset())
    delete(streams, "a1")
    return start, end


def test_a_stream_of_a_logged_batch_that_is_deleted_is_a_loss(streams: FakeStreams) -> None:
    start, end = gone_after_its_end(streams)
    with pytest.raises(DataCorruption, match=r"stream s/a1 is deleted.*fail_on_data_loss=false"):
        rows(reader(streams), start, end)


def test_a_stream_of_a_logged_batch_that_is_deleted_may_be_missed(
    streams: FakeStreams, caplog: pytest.LogCaptureFixture
) -> None:
    start, end = gone_after_its_end(streams)
    source = reader(streams, fail_on_data_loss="false")
    assert rows(source, start, end) == [b"y"]
    assert "stream s/a1 is deleted: the rows that a batch had of it are not read" in caplog.text
    add(streams, "a2", b"z")
    assert rows(source, end, source.latestOffset()) == [b"z"]


@pytest.mark.parametrize("start", [{"start_stream_cut": "earliest"}, {"start_time": "0"}])
def test_a_stream_that_joins_in_a_logged_batch_and_is_deleted(streams: FakeStreams, start: dict[str, str]) -> None:
    """It has no position from before, so the plan asks for its head."""
    add(streams, "a2", b"x")
    source = reader(streams, **start)
    first = copy_of(source.latestOffset())
    rows(source, source.initialOffset(), first)
    add(streams, "a1", b"y")
    add(streams, "a2", b"z")
    second = copy_of(source.latestOffset())
    delete(streams, "a1")
    with pytest.raises(DataCorruption, match="stream s/a1 is deleted"):
        rows(reader(streams, **start), first, second)
    assert rows(reader(streams, fail_on_data_loss="false", **start), first, second) == [b"z"]


@pytest.mark.parametrize("by", ["the same run", "a later run", "a later Spark"])
@pytest.mark.parametrize("start", [{"start_stream_cut": "latest"}, {"start_time": "0"}])
def test_what_is_truncated_from_a_stream_that_joined_in_a_logged_batch(
    streams: FakeStreams, start: dict[str, str], by: str
) -> None:
    """Its end says where it began, so nothing of it is missed unseen."""
    add(streams, "a2", b"x")
    source = reader(streams, **start)
    first = copy_of(source.latestOffset())
    rows(source, source.initialOffset(), first)
    add(streams, "a1", b"y", b"z")
    second = copy_of(source.latestOffset())
    assert second["first"] == {"s/a1": {"0": 0}}
    assert source.latestOffset() == second

    def repeating(**given: str) -> PlainStreamReader | StreamReader:
        if by == "a later Spark":
            return StreamReader(options(streams, **start, **given), SCHEMA, hurried_clock())
        return source if by == "the same run" and not given else reader(streams, **start, **given)

    assert rows(repeating(), first, second) == [b"y", b"z"]
    streams.gateway.truncate_stream("s", "a1", {0: 9})
    with pytest.raises(DataCorruption, match=r"a1 was lost before it was read: segment 0\.#epoch\.0 from offset 0"):
        rows(repeating(), first, second)
    assert rows(repeating(fail_on_data_loss="false"), first, second) == [b"z"]
    delete(streams, "a1")
    with pytest.raises(DataCorruption, match="stream s/a1 is deleted"):
        rows(repeating(), first, second)


def test_a_stream_that_came_while_the_query_was_stopped_says_where_it_began(streams: FakeStreams) -> None:
    add(streams, "a2", b"x")
    source = reader(streams)
    first = copy_of(source.latestOffset())
    rows(source, source.initialOffset(), first)
    add(streams, "a1", b"y")
    again = reader(streams)
    assert again.partitions(first, first) == []
    second = copy_of(again.latestOffset())
    assert second["first"] == {"s/a1": {"0": 0}}
    assert rows(again, first, second) == [b"y"]


def test_a_stream_by_its_name_that_is_deleted_is_not_found(streams: FakeStreams) -> None:
    """A query has no other ones to go on with."""
    add(streams, "a1", b"x")
    given = {"controller": streams.controller, "scope": "s", "stream": "a1", "order": "none"}
    source = PlainStreamReader(ReadOptions.parse({**given, "fail_on_data_loss": "false"}, Use.STREAM_READ), SCHEMA)
    end = copy_of(source.latestOffset())
    delete(streams, "a1")
    with pytest.raises(StreamNotFound):
        rows(source, source.initialOffset(), end)


def cut_text(name: str, cut: SegmentOffsets) -> str:
    return StreamCut("s", name, cut).as_text()


@pytest.mark.parametrize("start", [None, "earliest", "latest", "a cut"])
def test_a_first_batch_without_streams_is_repeated_once_there_is_one(streams: FakeStreams, start: str | None) -> None:
    """What came since is of the next batch."""
    given = {"start_time": "0"} if start is None else {"start_stream_cut": start}
    if start == "a cut":
        given["start_stream_cut"] = cut_text("a1", {0: 0})
    source = reader(streams, **given)
    end = copy_of(source.latestOffset())
    assert end == {"version": 2, "streams": {}}
    add(streams, "a1", b"x")
    again = reader(streams, **given)
    assert first_repeated(again, end) == []
    assert rows(again, end, again.latestOffset()) == [b"x"]


def test_a_first_batch_is_repeated_once_there_is_another_stream(streams: FakeStreams) -> None:
    """Where cuts are given an end does not say where its query began: the run that repeats it finds more streams."""
    add(streams, "a1", b"x")
    given = {"start_stream_cut": cut_text("a1", {0: 0})}
    source = reader(streams, **given)
    end = copy_of(source.latestOffset())
    add(streams, "a2", b"y")
    again = reader(streams, **given)
    assert first_repeated(again, end) == [b"x"]
    assert rows(again, end, again.latestOffset()) == [b"y"]


def asked_first(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, call: str, ask: Callable[[], None]) -> None:
    """Do something when a call asks about ``a2`` for the first time."""
    asked = getattr(streams.gateway, call)
    is_done = False

    def asking(scope: str, stream: str) -> SegmentOffsets:
        nonlocal is_done
        if stream == "a2" and not is_done:
            is_done = True
            ask()
        found: SegmentOffsets = asked(scope, stream)
        return found

    monkeypatch.setattr(streams.gateway, call, asking)


def not_there() -> None:
    raise StreamNotFound("stream s/a2 does not exist")


@pytest.mark.parametrize("has_another", [False, True])
def test_a_stream_that_is_deleted_between_the_first_start_and_the_first_end(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, has_another: bool
) -> None:
    add(streams, "a2", b"x")
    if has_another:
        add(streams, "a1", b"y")
    source = reader(streams)
    asked_first(streams, monkeypatch, "tail_cut", lambda: delete(streams, "a2"))
    end = copy_of(source.latestOffset())
    expected = [b"y"] if has_another else []
    assert end.get("first") == ({"s/a1": {"0": 0}} if has_another else None)
    assert rows(source, source.initialOffset(), end) == expected
    assert first_repeated(reader(streams), end) == expected


def test_a_stream_that_is_being_made_at_the_first_end(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a1", "a2"):
        add(streams, name, b"x")
    source = reader(streams)
    asked_first(streams, monkeypatch, "tail_cut", not_there)
    end = copy_of(source.latestOffset())
    assert rows(source, source.initialOffset(), end) == [b"x"]
    assert rows(source, end, source.latestOffset()) == [b"x"]


@pytest.mark.parametrize("made", ["nothing", "a1"])
def test_a_first_end_of_an_earlier_version_with_the_start_of_another_stream(streams: FakeStreams, made: str) -> None:
    """It can be planned again, here and by a later Spark."""
    first = {"s/a2": {"0": 0}}
    end: dict[str, Any] = {"version": 2, "streams": {}, "first": first}
    if made == "a1":
        add(streams, "a1", b"x")
        end = copy_of(reader(streams).latestOffset())
        end["first"] = {**end["first"], **first}
    expected = [] if made == "nothing" else [b"x"]
    source = reader(streams)
    assert first_repeated(source, end) == expected
    later = StreamReader(options(streams), SCHEMA, hurried_clock())
    assert rows(later, later.initialOffset(), end) == expected
    add(streams, "a3", b"y")
    again = reader(streams)
    assert rows(again, end, again.latestOffset()) == [b"y"]
    assert rows(later, end, later.latestOffset(end, ReadAllAvailable())) == [b"y"]


@pytest.mark.parametrize("start", ["earliest", "latest", "a cut"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_stream_that_is_not_there_at_the_first_start(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, start: str, is_deleted: bool
) -> None:
    """The pattern found it. A batch that began without it ends without it, so that it can be planned again."""
    add(streams, "a1", b"x")
    add(streams, "a2", b"y")
    given = {"start_stream_cut": cut_text("a1", {0: 0}) if start == "a cut" else start}
    source = reader(streams, **given)
    call = "tail_cut" if start == "latest" else "head_cut"
    asked_first(streams, monkeypatch, call, lambda: delete(streams, "a2") if is_deleted else not_there())
    begin = copy_of(source.initialOffset())
    assert list(begin["streams"]) == ["s/a1"]
    end = copy_of(source.latestOffset())
    assert list(end["streams"]) == ["s/a1"]
    expected = [] if start == "latest" else [b"x"]
    assert rows(source, begin, end) == expected
    following = copy_of(source.latestOffset())
    assert first_repeated(reader(streams, **given), end) == expected
    assert rows(reader(streams, **given), end, following) == ([] if is_deleted else [b"y"])


def test_a_stream_by_its_name_that_is_not_there_at_the_first_start(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(streams, "a2", b"x")
    given = {"controller": streams.controller, "scope": "s", "stream": "a2", "order": "none"}
    source = PlainStreamReader(ReadOptions.parse(given, Use.STREAM_READ), SCHEMA)
    asked_first(streams, monkeypatch, "tail_cut", not_there)
    with pytest.raises(StreamNotFound):
        source.initialOffset()


def test_a_position_in_a_deleted_stream_is_still_not_given_up(streams: FakeStreams) -> None:
    """Only a first batch begins without the streams that its end does not have."""
    add(streams, "a1", b"x")
    source = reader(streams)
    log = [copy_of(source.latestOffset())]
    rows(source, source.initialOffset(), log[0])
    delete(streams, "a1")
    end = source.latestOffset()
    assert end == {"version": 2, "streams": {}}
    with pytest.raises(DataCorruption, match="stream s/a1 is deleted"):
        rows(source, log[0], end)
    with pytest.raises(InvalidArgument, match="names no streams"):
        rows(source, log[0], {**end, "from": {}})
