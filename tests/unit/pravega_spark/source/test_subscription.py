"""A query as a subscriber: what it releases is never ahead of its checkpoint, and retention never stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pravega_common.errors import ConfigurationError, PravegaError
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary())])
ME, OTHER = "s/mine", "s/other"


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    made = FakeStreams(tmp_path)
    made.create("t")
    return made


def source(streams: FakeStreams, **given: str) -> StreamReader:
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
    return StreamReader(
        ReadOptions.parse(options | {"subscriber": "mine"} | given, Use.STREAM_READ), SCHEMA, standing_clock
    )


def standing_clock() -> float:
    """Looks cost no time, so a source is never too idle to look again."""
    return 0.0


class Query:
    """A query as Spark runs it: a batch is logged when it is planned, and again when it is done."""

    def __init__(self) -> None:
        self.planned: list[dict[str, Any]] = []
        self.done = 0

    def plan(self, reader: StreamReader) -> bool:
        """The next batch; before it, Spark tells the source what the batch before has committed."""
        start = self.planned[-1] if self.planned else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return False
        self.planned.append(json.loads(json.dumps(end)))
        if len(self.planned) > 1:
            reader.commit(self.planned[-2])
        return True

    def run(self, reader: StreamReader) -> None:
        start = self.planned[-2] if len(self.planned) > 1 else reader.initialOffset()
        assert reader.partitions(start, self.planned[-1])
        self.done = len(self.planned)

    def position(self, batch: int) -> dict[int, int]:
        return self.position_in("s/t", batch)

    def position_in(self, stream: str, batch: int = -1) -> dict[int, int]:
        return {int(item): offset for item, offset in self.planned[batch]["streams"][stream].items()}


def test_it_releases_what_is_done_and_nothing_more(streams: FakeStreams) -> None:
    query, reader = Query(), source(streams)
    streams.append("t", 0, [b"one"])
    assert query.plan(reader)
    assert streams.gateway.released("s", "t") == {ME: {0: 0}}
    query.run(reader)
    assert streams.gateway.released("s", "t") == {ME: {0: 0}}
    streams.append("t", 0, [b"two"])
    assert query.plan(reader)
    assert streams.gateway.released("s", "t") == {ME: query.position(0)}


def test_a_crash_before_the_release_is_made_up_for(streams: FakeStreams) -> None:
    query, reader = Query(), source(streams)
    streams.append("t", 0, [b"one"])
    query.plan(reader)
    query.run(reader)
    again = source(streams)
    streams.append("t", 0, [b"two"])
    query.plan(again)
    assert streams.gateway.released("s", "t") == {ME: query.position(0)}


def test_a_batch_that_is_repeated_is_held(streams: FakeStreams) -> None:
    """It was planned and not done: another process begins with it, and plans nothing before."""
    query, reader = Query(), source(streams)
    streams.append("t", 0, [b"one"])
    query.plan(reader)
    streams.gateway.unsubscribe("s", "mine")
    again = source(streams, start_stream_cut="latest")
    streams.append("t", 0, [b"two"])
    again.initialOffset()
    query.run(again)
    assert streams.gateway.released("s", "t") == {ME: {0: 0}}


def test_an_idle_query_holds_from_its_start(streams: FakeStreams) -> None:
    streams.append("t", 0, [b"one"])
    query, reader = Query(), source(streams, start_stream_cut="latest")
    tail = streams.gateway.tail_cut("s", "t")
    assert query.plan(reader), "a first batch without rows"
    assert not query.plan(reader)
    assert streams.gateway.released("s", "t") == {ME: tail}


def test_on_a_spark_without_limits_a_later_latest_releases_nothing(streams: FakeStreams) -> None:
    """It asks for the start again when a first batch is repeated: that may be later than the batch's own."""
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "order": "none", "subscriber": "mine"}
    parsed = ReadOptions.parse(options, Use.STREAM_READ)
    streams.append("t", 0, [b"before"])
    first = PlainStreamReader(parsed, SCHEMA)
    start = streams.gateway.tail_cut("s", "t")
    first.initialOffset()
    streams.append("t", 0, [b"one"])
    end = json.loads(json.dumps(first.latestOffset()))
    again = PlainStreamReader(parsed, SCHEMA)
    later = again.initialOffset()
    assert streams.gateway.released("s", "t") == {}
    again.partitions(later, end)
    assert streams.gateway.released("s", "t") == {ME: start}
    again.commit(end)
    assert streams.gateway.released("s", "t") == {ME: streams.gateway.tail_cut("s", "t")}


def test_on_a_spark_without_limits_a_restart_holds_what_was_planned(streams: FakeStreams) -> None:
    """Before a batch is repeated, Spark gives its end as start and end of a plan."""
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "order": "none", "subscriber": "mine"}
    parsed = ReadOptions.parse(options, Use.STREAM_READ)
    reader = PlainStreamReader(parsed, SCHEMA)
    log = [reader.initialOffset()]
    for event in (b"one", b"two"):
        streams.append("t", 0, [event])
        log.append(json.loads(json.dumps(reader.latestOffset())))
        reader.partitions(log[-2], log[-1])
    streams.gateway.unsubscribe("s", "mine")
    again = PlainStreamReader(parsed, SCHEMA)
    assert again.partitions(log[-1], log[-1]) == []
    assert streams.gateway.released("s", "t") == {}
    again.partitions(log[-2], log[-1])
    assert streams.gateway.released("s", "t") == {ME: {0: 11}}


def test_another_name_is_another_subscriber(streams: FakeStreams) -> None:
    for name in ("mine", "other"):
        Query().plan(source(streams, subscriber=name))
    assert streams.gateway.released("s", "t").keys() == {ME, OTHER}


def test_without_the_option_there_is_none(streams: FakeStreams) -> None:
    given = {"controller": streams.controller, "scope": "s", "stream": "t", "start_stream_cut": "earliest"}
    reader = StreamReader(ReadOptions.parse(given, Use.STREAM_READ), SCHEMA)
    streams.append("t", 0, [b"one"])
    query = Query()
    query.plan(reader)
    query.run(reader)
    reader.commit(query.planned[0])
    assert streams.gateway.released("s", "t") == {}


def test_one_that_was_removed_is_said_once_and_stops_nothing(
    streams: FakeStreams, caplog: pytest.LogCaptureFixture
) -> None:
    query, reader = Query(), source(streams)
    query.plan(reader)
    streams.gateway.unsubscribe("s", "mine")
    for event in (b"one", b"two", b"three"):
        streams.append("t", 0, [event])
        query.plan(reader)
        query.run(reader)
    assert [record.message.startswith("subscriber s/mine of s/t was removed") for record in caplog.records] == [True]
    assert streams.gateway.released("s", "t") == {}


def test_an_older_checkpoint_is_said_and_releases_nothing(
    streams: FakeStreams, caplog: pytest.LogCaptureFixture
) -> None:
    newer, reader = Query(), source(streams)
    for event in (b"one", b"two"):
        streams.append("t", 0, [event])
        newer.plan(reader)
        newer.run(reader)
    released = streams.gateway.released("s", "t")
    Query().plan(source(streams))
    assert streams.gateway.released("s", "t") == released
    assert "two queries have one name" in caplog.text


def test_a_query_that_cannot_subscribe_does_not_start(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise PravegaError("no")

    monkeypatch.setattr(type(streams.gateway), "subscribe", refuse)
    streams.append("t", 0, [b"one"])
    with pytest.raises(PravegaError, match="no"):
        Query().plan(source(streams))


class TestPattern:
    """Streams that come and go while a query runs."""

    def source(self, streams: FakeStreams, **given: str) -> StreamReader:
        self.now_s = 0.0
        options = {"controller": streams.controller, "scope": "s", "stream_pattern": "orders-.*", "subscriber": "mine"}
        parsed = ReadOptions.parse({**options, "start_stream_cut": "earliest", **given}, Use.STREAM_READ)
        return StreamReader(parsed, SCHEMA, lambda: self.now_s, lambda seconds: None)

    def add(self, streams: FakeStreams, stream: str, *events: bytes) -> None:
        streams.create(stream)
        streams.append(stream, 0, list(events))
        self.now_s = getattr(self, "now_s", 0.0) + 30

    def step(self, query: Query, reader: StreamReader) -> None:
        assert query.plan(reader)
        query.run(reader)

    def released(self, streams: FakeStreams) -> list[dict[int, int] | None]:
        return [streams.gateway.released("s", name).get(ME) for name in ("orders-1", "orders-2")]

    def test_a_new_stream_is_held_before_it_is_read(self, streams: FakeStreams) -> None:
        query, reader = Query(), self.source(streams)
        self.add(streams, "orders-1", b"one")
        self.step(query, reader)
        self.add(streams, "orders-2", b"two")
        assert query.plan(reader)
        one = streams.gateway.tail_cut("s", "orders-1")
        assert self.released(streams) == [one, {0: 0}]
        query.run(reader)
        self.add(streams, "orders-1", b"three")
        self.step(query, reader)
        assert self.released(streams) == [one, streams.gateway.tail_cut("s", "orders-2")]

    def test_a_query_that_waits_for_its_first_stream(self, streams: FakeStreams) -> None:
        query, reader = Query(), self.source(streams)
        assert not query.plan(reader)
        self.add(streams, "orders-1", b"one")
        assert query.plan(reader)
        assert self.released(streams) == [{0: 0}, None]

    def test_a_repeated_batch_holds_what_came_since(self, streams: FakeStreams) -> None:
        """It was planned before the second stream was made, and may take long."""
        self.add(streams, "orders-1", b"one")
        query, reader = Query(), self.source(streams)
        query.plan(reader)
        self.add(streams, "orders-2", b"two")
        again = self.source(streams, start_stream_cut="latest")
        again.initialOffset()
        query.run(again)
        assert self.released(streams) == [{0: 0}, {0: 0}]

    def test_a_stream_that_is_deleted_and_made_again_is_held_again(self, streams: FakeStreams) -> None:
        query, reader = Query(), self.source(streams, fail_on_data_loss="false")
        self.add(streams, "orders-1", b"one")
        self.add(streams, "orders-2", b"two")
        self.step(query, reader)
        streams.gateway.delete_stream("s", "orders-2")
        self.add(streams, "orders-1", b"three")
        self.step(query, reader)
        streams.create("orders-2")
        streams.append("orders-2", 1, [b"four"])
        self.now_s += 30
        assert query.plan(reader)
        assert self.released(streams) == [streams.gateway.tail_cut("s", "orders-1"), {1: 0}]

    def test_a_controller_that_refuses_is_asked_again(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What is read meanwhile is read, and said once."""
        query, reader = Query(), self.source(streams)
        self.add(streams, "orders-1", b"one")
        self.step(query, reader)

        def refuse(*given: Any) -> None:
            raise PravegaError("no")

        self.add(streams, "orders-2", b"two")
        with monkeypatch.context() as patched:
            patched.setattr(type(streams.gateway), "subscribe", refuse)
            self.step(query, reader)
            assert not query.plan(reader)
        assert self.released(streams)[1] is None
        assert caplog.text.count("subscriber mine does not hold its new streams yet: no") == 1
        held = query.position_in("s/orders-2")
        self.add(streams, "orders-2", b"three")
        self.step(query, reader)
        assert self.released(streams)[1] == held

    def test_streams_that_stand_still_cost_no_call(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        query, reader = Query(), self.source(streams)
        self.add(streams, "orders-1", b"one")
        self.add(streams, "orders-2", b"two")
        self.step(query, reader)
        called: list[str] = []
        release = streams.gateway.release

        def noted(*given: Any) -> None:
            called.append(given[2])
            release(*given)

        monkeypatch.setattr(streams.gateway, "release", noted)
        for _ in range(3):
            self.add(streams, "orders-1", b"more")
            self.step(query, reader)
        assert called == ["orders-1", "orders-2", "orders-1", "orders-1"]

    def test_on_a_spark_without_limits(self, streams: FakeStreams) -> None:
        self.add(streams, "orders-1", b"one")
        given = {"controller": streams.controller, "scope": "s", "stream_pattern": "orders-.*", "order": "none"}
        given |= {"subscriber": "mine", "start_stream_cut": "earliest"}
        reader = PlainStreamReader(ReadOptions.parse(given, Use.STREAM_READ), SCHEMA, lambda: self.now_s)
        start = reader.initialOffset()
        first = reader.latestOffset()
        reader.partitions(start, first)
        self.add(streams, "orders-2", b"two")
        second = reader.latestOffset()
        reader.partitions(first, second)
        assert self.released(streams) == [{0: 0}, {0: 0}]
        reader.commit(second)
        assert self.released(streams) == [streams.gateway.tail_cut("s", name) for name in ("orders-1", "orders-2")]


@pytest.mark.parametrize("name", ["_mine", "a/b", "n" * 251])
def test_a_name_that_no_subscriber_has(streams: FakeStreams, name: str) -> None:
    with pytest.raises(ConfigurationError, match="subscriber"):
        source(streams, subscriber=name)
