"""Reads of all streams whose names match a pattern, over the fake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    InvalidArgument,
    NotFound,
    SegmentNotFound,
    StreamNotFound,
    Unavailable,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import segment_name
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source import read_streams
from pravega_spark.source.batch_reader import BatchReader, MetadataReader
from pravega_spark.source.partition_reader import RowsPartition, SpanPartition
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.source.queries import SCHEMA, Query, numbered, steps_of
from tests.unit.pravega_spark.streams import FakeStreams


class Source:
    """Streams of a test, and sources of ``orders-.*`` that look again when the test says so."""

    def __init__(self, streams: FakeStreams) -> None:
        self.streams = streams
        self.now_s = 0.0

    def add(self, stream: str, first: int, last: int, segments: int = 1) -> None:
        """Append to a stream, which is created if it is missing."""
        self.streams.create(stream, segments)
        self.streams.append(stream, 0, numbered(first, last))

    def options(self, use: Use = Use.STREAM_READ, /, **given: str) -> ReadOptions:
        named = {"controller": self.streams.controller, "scope": "s", "stream_pattern": "orders-.*"}
        return ReadOptions.parse({**named, **given}, use)

    def reader(self, **given: str) -> StreamReader:
        options = self.options(**{"start_stream_cut": "earliest", "packed_bytes": "0", **given})
        return StreamReader(options, SCHEMA, lambda: self.now_s, lambda seconds: None)

    def pass_interval(self) -> None:
        self.now_s += 30

    def batch(self, **given: str) -> BatchReader:
        return BatchReader(self.options(Use.BATCH_READ, **given), SCHEMA)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    forget_provisioned()
    return Source(FakeStreams(tmp_path))


def rows_of(step: list[list[bytes]] | None) -> list[bytes]:
    assert step is not None
    return sorted(event for partition in step for event in partition)


def test_streams_whose_whole_name_matches(source: Source) -> None:
    for index, name in enumerate(["orders-eu", "old-orders-eu", "orders", "orders-us", "_orders-x"]):
        source.add(name, index, index + 1)
    query = Query(source.reader())
    assert query.step() == [numbered(0, 1), numbered(3, 4)]
    assert list(json.loads(query.log[0])["streams"]) == ["s/orders-eu", "s/orders-us"]
    assert Query(source.reader(stream_pattern=".*orders-x")).step() == [], "an internal stream"


def test_a_new_stream_is_read_from_its_head(source: Source) -> None:
    """Also where the query began at the latest event."""
    source.add("orders-1", 0, 2)
    query = Query(source.reader(start_stream_cut="latest"))
    assert query.step() == []
    source.add("orders-1", 2, 4)
    source.add("orders-2", 4, 6)
    assert rows_of(query.step()) == numbered(2, 4)
    source.pass_interval()
    assert rows_of(query.step()) == numbered(4, 6)
    assert query.step() is None
    query.restart(source.reader(start_stream_cut="latest"))
    assert query.step() is None


def test_a_stream_made_while_the_query_is_stopped(source: Source) -> None:
    source.add("orders-1", 0, 2)
    query = Query(source.reader(start_stream_cut="latest"))
    assert query.step() == []
    source.add("orders-1", 2, 3)
    assert rows_of(query.step()) == numbered(2, 3)
    source.add("orders-2", 4, 6)
    query.restart(source.reader(start_stream_cut="latest"))
    assert rows_of(query.step()) == numbered(4, 6)


def test_a_batch_with_a_new_stream_is_repeated_from_its_offsets(source: Source) -> None:
    source.add("orders-1", 0, 2)
    query = Query(source.reader())
    assert rows_of(query.step()) == numbered(0, 2)
    source.add("orders-2", 2, 4)
    source.pass_interval()
    assert rows_of(query.step()) == numbered(2, 4)
    source.add("orders-2", 4, 9)
    again = Query(source.reader())
    assert rows_of(again.rows(json.loads(query.log[0]), json.loads(query.log[1]))) == numbered(2, 4)


def test_what_is_truncated_from_a_new_stream_is_missed(source: Source) -> None:
    """Its head is where the query found it, though a batch has not taken it yet."""
    source.add("orders-1", 0, 2)
    query = Query(source.reader(max_events_per_trigger="1"))
    source.add("orders-2", 2, 6)
    assert rows_of(query.step()) == [*numbered(0, 1), *numbered(2, 3)]
    source.add("orders-3", 6, 9)
    source.pass_interval()
    start = json.loads(query.log[-1])
    query.source.latestOffset(start, query.source.getDefaultReadLimit())
    source.streams.gateway.truncate_stream("s", "orders-3", {0: 2 * 18})
    with pytest.raises(
        DataCorruption, match=r"orders-3 was lost before it was read: segment 0\.#epoch\.0 from offset 0"
    ):
        query.step()


def test_a_query_waits_for_its_first_stream(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(source.reader())
    start = query.source.initialOffset()
    assert start == {"version": 2, "streams": {}}
    assert query.source.latestOffset(start, ReadAllAvailable()) == start
    assert query.source.partitions(start, start) == []
    assert "no stream of scope 's' matches stream_pattern 'orders-.*'; the query waits for one" in caplog.text
    source.add("orders-1", 0, 2)
    source.pass_interval()
    end = query.source.latestOffset(start, ReadAllAvailable())
    assert rows_of(query.rows(start, end)) == numbered(0, 2)
    # A first batch without streams that is repeated: what came since is not of it.
    later = source.reader()
    assert later.partitions(later.initialOffset(), start) == []
    assert rows_of(Query(later).rows(start, later.latestOffset(start, ReadAllAvailable()))) == numbered(0, 2)


def test_a_stream_that_came_just_before_the_end_is_read_up_to_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look for streams is due between its creation and the end."""
    clock = {"now": 1_000_000}
    monkeypatch.setattr("pravega_spark.source.stream_reader.time.time_ns", lambda: clock["now"] * 1_000_000)
    monkeypatch.setattr(source.streams.gateway, "now_ms", lambda: clock["now"])
    source.add("orders-1", 0, 2)
    query = Query(source.reader(end_time="1010000"))
    assert rows_of(query.step()) == numbered(0, 2)
    source.add("orders-2", 2, 4)
    clock["now"] += 20_000
    list_streams = source.streams.gateway.list_streams

    def unavailable(scope: str) -> list[str]:
        raise Unavailable("no controller")

    monkeypatch.setattr(source.streams.gateway, "list_streams", unavailable)
    assert query.step() is None
    monkeypatch.setattr(source.streams.gateway, "list_streams", list_streams)
    assert rows_of(query.step()) == numbered(2, 4)
    source.add("orders-3", 4, 6)
    source.pass_interval()
    assert query.step() is None


class TestBeingMade:
    """A controller lists a stream, and tells its head, before the stores have its segments."""

    @pytest.fixture
    def unmade(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Streams without segments, as long as they are named here."""
        names: set[str] = set()
        gateway = source.streams.gateway
        one, many = gateway.segment_infos, gateway.segment_infos_of_streams

        def infos(scope: str, stream: str, ids: Iterable[int]) -> dict[int, SegmentInfo]:
            return {} if stream in names else one(scope, stream, ids)

        def infos_of_streams(
            wanted: Mapping[tuple[str, str], Iterable[int]],
        ) -> dict[tuple[str, str], dict[int, SegmentInfo]]:
            return {name: {} if name[1] in names else found for name, found in many(wanted).items()}

        monkeypatch.setattr(gateway, "segment_infos", infos)
        monkeypatch.setattr(gateway, "segment_infos_of_streams", infos_of_streams)
        return names

    def test_is_read_once_it_is_made(self, source: Source, unmade: set[str]) -> None:
        source.add("orders-1", 0, 2)
        query = Query(source.reader())
        assert rows_of(query.step()) == numbered(0, 2)
        source.add("orders-1", 2, 3)
        source.add("orders-2", 3, 5)
        unmade.add("orders-2")
        source.pass_interval()
        assert rows_of(query.step()) == numbered(2, 3)
        assert query.step() is None
        unmade.clear()
        assert rows_of(query.step()) == numbered(3, 5)

    def test_at_the_start_of_a_query(self, source: Source, unmade: set[str]) -> None:
        source.add("orders-1", 0, 2)
        source.add("orders-2", 2, 4)
        unmade.add("orders-2")
        query = Query(source.reader())
        assert rows_of(query.step()) == numbered(0, 2)
        unmade.clear()
        assert rows_of(query.step()) == numbered(2, 4)

    @pytest.mark.parametrize("times", [{"start_time": "0"}, {"start_time": "0", "end_time": "99"}, {"end_time": "99"}])
    def test_where_a_time_is_looked_for(
        self, source: Source, unmade: set[str], monkeypatch: pytest.MonkeyPatch, times: dict[str, str]
    ) -> None:
        monkeypatch.setattr(source.streams.gateway, "now_ms", lambda: 50)
        source.add("orders-1", 0, 2)
        source.add("orders-2", 2, 4)
        unmade.add("orders-2")
        options = source.options(**({} if "start_time" in times else {"start_stream_cut": "earliest"}), **times)
        query = Query(StreamReader(options, SCHEMA, lambda: source.now_s, lambda seconds: None))
        assert rows_of(query.step()) == numbered(0, 2)

    def test_without_its_segments_for_long_it_is_a_loss(self, source: Source, unmade: set[str]) -> None:
        source.add("orders-1", 0, 2)
        source.add("orders-2", 2, 4)
        unmade.add("orders-2")
        query = Query(source.reader())
        assert rows_of(query.step()) == numbered(0, 2)
        for _ in range(3):
            source.pass_interval()
        with pytest.raises(DataCorruption, match="s/orders-2 was lost before it was read"):
            query.step()


class TestDeleted:
    @pytest.fixture
    def query(self, source: Source) -> Query:
        for index, name in enumerate(["orders-1", "orders-2"]):
            source.add(name, 2 * index, 2 * index + 2)
        query = Query(source.reader())
        assert rows_of(query.step()) == numbered(0, 4)
        source.streams.gateway.seal_stream("s", "orders-1")
        source.streams.gateway.delete_stream("s", "orders-1")
        source.add("orders-2", 4, 6)
        return query

    def test_is_a_loss(self, source: Source, query: Query) -> None:
        query.restart(source.reader())
        with pytest.raises(DataCorruption, match=r"stream s/orders-1 is deleted.*fail_on_data_loss=false"):
            query.step()

    def test_while_it_runs(self, source: Source, query: Query) -> None:
        source.pass_interval()
        with pytest.raises(DataCorruption, match="stream s/orders-1 is deleted"):
            query.step()

    def test_may_be_missed(self, source: Source, query: Query, caplog: pytest.LogCaptureFixture) -> None:
        query.restart(source.reader(fail_on_data_loss="false"))
        assert rows_of(query.step()) == numbered(4, 6)
        assert query.step() is None
        assert caplog.text.count("the position of the checkpoint in s/orders-1 is given up") == 1
        assert list(json.loads(query.log[-1])["streams"]) == ["s/orders-2"]

    def test_may_be_missed_while_it_runs_and_be_made_again(self, source: Source, query: Query) -> None:
        source.streams.create("orders-1")
        query.restart(source.reader(fail_on_data_loss="false"))
        assert rows_of(query.step()) == numbered(4, 6)
        source.streams.append("orders-1", 1, numbered(6, 7))
        source.pass_interval()
        assert rows_of(query.step()) == numbered(6, 7)

    def test_each_time_that_it_is_missed_is_said(
        self, source: Source, query: Query, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is made again and deleted again, with the same query."""
        query.restart(source.reader(fail_on_data_loss="false"))
        assert rows_of(query.step()) == numbered(4, 6)
        source.streams.create("orders-1")
        source.streams.append("orders-1", 1, numbered(6, 7))
        source.pass_interval()
        assert rows_of(query.step()) == numbered(6, 7)
        source.streams.gateway.seal_stream("s", "orders-1")
        source.streams.gateway.delete_stream("s", "orders-1")
        source.add("orders-2", 7, 8)
        source.pass_interval()
        assert rows_of(query.step()) == numbered(7, 8)
        assert caplog.text.count("the position of the checkpoint in s/orders-1 is given up") == 2

    def test_a_list_that_leaves_a_stream_out(
        self, source: Source, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether it is deleted is asked for by its name."""
        source.streams.create("orders-1")
        query.restart(source.reader(fail_on_data_loss="false"))
        query.step()
        monkeypatch.setattr(source.streams.gateway, "list_streams", lambda scope: ["orders-2"])
        source.pass_interval()
        source.streams.append("orders-1", 1, numbered(6, 7))
        assert rows_of(query.step()) == numbered(6, 7)


def test_a_pattern_that_leaves_a_stream_out(source: Source) -> None:
    source.add("orders-1", 0, 2)
    query = Query(source.reader())
    query.step()
    query.restart(source.reader(stream_pattern="orders-[2-9]"))
    with pytest.raises(
        InvalidArgument, match="position in s/orders-1, which the option 'stream_pattern' does not name"
    ):
        query.step()
    query.restart(source.reader(stream_pattern="orders-[2-9]", fail_on_data_loss="false"))
    assert query.step() is None


def test_a_checkpoint_goes_from_names_to_a_pattern_and_back(source: Source) -> None:
    source.add("orders-1", 0, 2)
    named = {"controller": source.streams.controller, "scope": "s", "start_stream_cut": "earliest"}

    def by_names(names: str) -> StreamReader:
        return StreamReader(ReadOptions.parse({**named, "stream": names}, Use.STREAM_READ), SCHEMA, lambda: 0.0)

    query = Query(by_names("orders-1"))
    assert rows_of(query.step()) == numbered(0, 2)
    source.add("orders-2", 2, 4)
    query.restart(source.reader())
    assert rows_of(query.step()) == numbered(2, 4)
    query.restart(by_names("orders-1,orders-2"))
    assert query.step() is None


def delete_at(source: Source, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Make three streams, of which the second is deleted when a call asks about it."""
    for index, name in enumerate(["orders-1", "orders-2", "orders-3"]):
        source.add(name, index, index + 1)
    gateway = source.streams.gateway
    asked = getattr(gateway, call)

    def deleting(scope: str, stream: str, *given: Any) -> Any:
        if stream == "orders-2" and gateway.stream_exists(scope, stream):
            gateway.seal_stream(scope, stream)
            gateway.delete_stream(scope, stream)
        try:
            return asked(scope, stream, *given)
        except StreamNotFound as error:
            # A controller says of nothing that it is missing more than that.
            raise NotFound(str(error)) from error

    monkeypatch.setattr(gateway, call, deleting)


@pytest.mark.parametrize("call", ["tail_cut", "head_cut", "segments_between"])
def test_a_batch_leaves_out_a_stream_that_is_deleted_while_it_is_planned(
    source: Source, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As it would have a moment later."""
    delete_at(source, monkeypatch, call)
    batch = source.batch()
    rows = [row for part in batch.partitions() for rows in batch.read(part) for row in rows.column(0).to_pylist()]
    assert sorted(rows) == [*numbered(0, 1), *numbered(2, 3)]


FACTS = pa.schema([("tail_stream_cut", pa.string()), ("head_stream_cut", pa.string())])


def test_facts_are_in_the_columns_of_their_names(source: Source) -> None:
    source.add("orders-1", 0, 3)
    facts = MetadataReader(source.options(Use.BATCH_READ, metadata="StreamInfo"), FACTS)
    (batch,) = (batch for part in facts.partitions() for batch in facts.read(part))
    (row,) = batch.to_pylist()
    assert StreamCut.from_text(row["head_stream_cut"]).offsets == {0: 0}
    assert StreamCut.from_text(row["tail_stream_cut"]).offsets != {0: 0}


@pytest.mark.parametrize(
    "schema", [pa.schema([("x", pa.string())]), pa.schema([("head_stream_cut", pa.int64())])], ids=str
)
def test_a_schema_that_facts_do_not_have_is_refused(source: Source, schema: pa.Schema) -> None:
    with pytest.raises(InvalidArgument, match="name some of: head_stream_cut string, tail_stream_cut string"):
        MetadataReader(source.options(Use.BATCH_READ, metadata="StreamInfo"), schema)


def named_in(source: Source) -> list[str]:
    """The streams of a batch of facts."""
    (made,) = MetadataReader(source.options(Use.BATCH_READ, metadata="StreamInfo"), FACTS).partitions()
    assert isinstance(made, RowsPartition)
    for head, tail in made.rows:
        assert StreamCut.from_text(head).stream == StreamCut.from_text(tail).stream
    return [StreamCut.from_text(head).stream for head, _ in made.rows]


@pytest.mark.parametrize("call", ["tail_cut", "head_cut"])
def test_facts_leave_out_a_stream_that_is_deleted_while_they_are_gathered(
    source: Source, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    delete_at(source, monkeypatch, call)
    assert named_in(source) == ["orders-1", "orders-3"]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_segments_that_are_gone_are_those_of_a_stream_that_is_being_deleted(
    source: Source, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """They go before their stream. Of a stream that stays they are lost, which is not passed over."""
    source.add("orders-1", 0, 1)
    source.add("orders-2", 1, 2)
    gateway = source.streams.gateway
    monkeypatch.setattr(read_streams, "look_pause_s", 0.0)
    tail_cut = gateway.tail_cut
    looks = iter([True, not is_deleted])

    def without_segments(scope: str, stream: str) -> Any:
        if stream == "orders-2":
            raise SegmentNotFound(segment_name(scope, stream, 0))
        return tail_cut(scope, stream)

    monkeypatch.setattr(gateway, "tail_cut", without_segments)
    monkeypatch.setattr(gateway, "stream_exists", lambda scope, stream: next(looks, not is_deleted))
    if is_deleted:
        assert named_in(source) == ["orders-1"]
    else:
        for read in (lambda: named_in(source), lambda: source.batch().partitions()):
            with pytest.raises(SegmentNotFound):
                read()


def test_a_batch_of_named_streams_needs_them_all(source: Source) -> None:
    source.add("orders-1", 0, 1)
    named = {"controller": source.streams.controller, "scope": "s", "stream": "orders-1,orders-2"}
    with pytest.raises(ConfigurationError, match="stream does not exist: 's/orders-2'"):
        BatchReader(ReadOptions.parse(named, Use.BATCH_READ), SCHEMA).partitions()


def test_too_many_streams(source: Source) -> None:
    for index in range(3):
        source.add(f"orders-{index}", index, index + 1)
    message = "3 streams of scope 's' match stream_pattern 'orders-.*', and max_streams is 2: narrow the pattern"
    with pytest.raises(ConfigurationError, match=message.replace("*", r"\*")):
        source.reader(max_streams="2").initialOffset()
    with pytest.raises(ConfigurationError, match="3 streams of scope 's' match"):
        source.batch(max_streams="2").partitions()


class TestCosts:
    @pytest.fixture
    def calls(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        counted: Counter[str] = Counter()
        for name in ("list_streams", "stream_exists", "head_cut", "tail_cut"):
            call = getattr(source.streams.gateway, name)

            def counting(*given: str, name: str = name, call=call) -> object:  # type: ignore[no-untyped-def]
                counted[name] += 1
                return call(*given)

            monkeypatch.setattr(source.streams.gateway, name, counting)
        return counted

    def test_a_scope_is_listed_once_an_interval(self, source: Source, calls: Counter[str]) -> None:
        for index in range(5):
            source.add(f"orders-{index}", index, index + 1)
        query = Query(source.reader())
        query.step()
        assert calls == {"list_streams": 1, "head_cut": 5}
        calls.clear()
        for _ in range(10):
            assert query.step() is None
        assert not calls
        for _ in range(3):
            source.pass_interval()
            assert query.step() is None
        assert calls == {"list_streams": 3}

    def test_an_empty_new_stream_is_asked_for_its_head_once(self, source: Source, calls: Counter[str]) -> None:
        source.add("orders-1", 0, 2)
        query = Query(source.reader())
        query.step()
        calls.clear()
        source.streams.create("orders-2")
        source.pass_interval()
        for _ in range(10):
            assert query.step() is None
        assert calls == {"list_streams": 1, "head_cut": 1}

    def test_a_controller_that_does_not_answer(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        """The known streams are read on, and the scope is listed in the next interval."""
        source.add("orders-1", 0, 2)
        query = Query(source.reader())
        query.step()
        source.add("orders-1", 2, 3)
        source.add("orders-2", 3, 5)
        source.pass_interval()

        def refusing(scope: str) -> list[str]:
            raise Unavailable("no controller answers")

        with monkeypatch.context() as patched:
            patched.setattr(source.streams.gateway, "list_streams", refusing)
            assert rows_of(query.step()) == numbered(2, 3)
        assert query.step() is None
        source.pass_interval()
        assert rows_of(query.step()) == numbered(3, 5)


class TestWithOtherOptions:
    def test_limits(self, source: Source) -> None:
        source.add("orders-1", 0, 10)
        query = Query(source.reader(max_events_per_trigger="4"))
        assert len(rows_of(query.step())) == 4
        source.add("orders-2", 10, 20)
        source.pass_interval()
        steps = steps_of(query)
        assert all(len(step) <= 4 for step in steps)
        assert sorted([event for step in steps for event in step]) == numbered(4, 20)

    def test_available_now(self, source: Source) -> None:
        """A stream that is made meanwhile is of the next run."""
        source.add("orders-1", 0, 4)
        query = Query(source.reader(max_events_per_trigger="2"))
        query.source.prepareForTriggerAvailableNow()
        source.add("orders-2", 4, 6)
        source.pass_interval()
        assert sorted(query.all()) == numbered(0, 4)
        query.restart(source.reader(max_events_per_trigger="2"))
        query.source.prepareForTriggerAvailableNow()
        assert sorted(query.all()) == numbered(4, 6)

    def test_available_now_without_a_stream(self, source: Source) -> None:
        query = Query(source.reader())
        query.source.prepareForTriggerAvailableNow()
        source.add("orders-1", 0, 4)
        source.pass_interval()
        assert steps_of(query) == [[]]

    def test_an_end(self, source: Source) -> None:
        """A stream that is made later has nothing before it."""
        source.add("orders-1", 0, 2)
        query = Query(source.reader(end_stream_cut="latest"))
        assert rows_of(query.step()) == numbered(0, 2)
        source.add("orders-2", 2, 4)
        source.pass_interval()
        assert query.step() is None

    def test_cuts_of_some_streams(self, source: Source) -> None:
        """To start at and to end at; another stream starts at its head, and ends there too."""
        source.add("orders-1", 0, 4)
        source.add("orders-2", 4, 6)
        cut = StreamCut("s", "orders-1", {0: 3 * 18}).as_text()
        assert rows_of(Query(source.reader(start_stream_cut=cut)).step()) == numbered(3, 6)
        assert rows_of(Query(source.reader(end_stream_cut=cut)).step()) == numbered(0, 3)

    def test_times_of_streams(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, first in [("orders-1", 0), ("orders-2", 2)]:
            source.streams.create(name)
            for index in range(2):
                monkeypatch.setattr(source.streams.gateway, "now_ms", lambda index=index: 1_000 + index * 1_000)
                source.streams.append(name, 0, numbered(first + index, first + index + 1))
        given = {"start_time": '{"orders-1": 2000}', "start_stream_cut": "earliest"}
        options = {key: value for key, value in given.items() if key == "start_time"}
        query = Query(StreamReader(source.options(**options), SCHEMA, lambda: source.now_s))
        assert rows_of(query.step()) == numbered(1, 4)
        everywhere = Query(StreamReader(source.options(start_time="2000"), SCHEMA, lambda: source.now_s))
        assert rows_of(everywhere.step()) == [*numbered(1, 2), *numbered(3, 4)]


class TestBatch:
    def test_reads_all_that_match(self, source: Source) -> None:
        source.add("orders-1", 0, 2)
        source.add("orders-2", 2, 4)
        source.add("others", 4, 6)
        batch = source.batch()
        partitions = batch.partitions()
        rows = [row for item in partitions for part in batch.read(item) for row in part.column(0).to_pylist()]
        assert sorted(rows) == numbered(0, 4)
        first = partitions[0]
        assert isinstance(first, SpanPartition) and first.ends is not None
        assert sorted(first.ends) == ["s/orders-1", "s/orders-2"]

    def test_without_a_match(self, source: Source) -> None:
        with pytest.raises(ConfigurationError, match=r"no stream of scope 's' matches stream_pattern 'orders-\.\*'"):
            source.batch().partitions()

    @pytest.mark.parametrize("metadata", ["Streams", "StreamInfo"])
    def test_facts(self, source: Source, metadata: str) -> None:
        source.add("orders-1", 0, 2)
        source.add("others", 2, 4)
        (made,) = MetadataReader(source.options(Use.BATCH_READ, metadata=metadata), pa.schema([])).partitions()
        assert isinstance(made, RowsPartition) and len(made.rows) == 1


class TestBeforeSpark42:
    """``PlainStreamReader``."""

    def reader(self, source: Source, **given: str) -> PlainStreamReader:
        made = source.options(order="none", start_stream_cut="earliest", stream_discovery_interval="1s", **given)
        return PlainStreamReader(made, SCHEMA, lambda: source.now_s)

    def test_a_new_stream_and_a_deleted_one(self, source: Source) -> None:
        source.add("orders-1", 0, 2)
        reader = self.reader(source)
        start, first = reader.initialOffset(), reader.latestOffset()
        assert self.rows(reader, start, first) == numbered(0, 2)
        source.add("orders-2", 2, 4)
        assert reader.latestOffset() == first
        source.pass_interval()
        second = reader.latestOffset()
        assert self.rows(reader, first, second) == numbered(2, 4)
        source.streams.gateway.delete_stream("s", "orders-1")
        source.add("orders-2", 4, 5)
        third = reader.latestOffset()
        with pytest.raises(DataCorruption, match="stream s/orders-1 is deleted"):
            reader.partitions(second, third)
        assert self.rows(self.reader(source, fail_on_data_loss="false"), second, third) == numbered(4, 5)

    def test_waits_for_its_first_stream(self, source: Source) -> None:
        reader = self.reader(source)
        start, first = reader.initialOffset(), reader.latestOffset()
        assert reader.partitions(start, first) == []
        source.add("orders-1", 0, 2)
        source.pass_interval()
        assert self.rows(reader, first, reader.latestOffset()) == numbered(0, 2)

    def rows(self, reader: PlainStreamReader, start: object, end: object) -> list[bytes]:
        partitions = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
        return sorted(row for item in partitions for part in reader.read(item) for row in part.column(0).to_pylist())


@pytest.fixture
def asked(source: Source, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the questions to stores about segments."""
    counted: Counter[str] = Counter()

    def noted(name: str) -> Callable[..., Any]:
        call = getattr(source.streams.gateway, name)

        def noting(*arguments: Any) -> Any:
            counted[name] += 1
            return call(*arguments)

        return noting

    for name in ("segment_infos", "segment_infos_of_streams"):
        monkeypatch.setattr(source.streams.gateway, name, noted(name))
    return counted


def test_an_idle_look_asks_once_for_all_streams(source: Source, asked: Counter[str]) -> None:
    for index in range(20):
        source.add(f"orders-{index:02}", index, index + 1, segments=3)
    query = Query(source.reader())
    assert rows_of(query.step()) == numbered(0, 20)
    for _ in range(2):
        asked.clear()
        assert query.step() is None
        assert asked == {"segment_infos_of_streams": 1}
    source.add("orders-07", 20, 21)
    asked.clear()
    assert rows_of(query.step()) == numbered(20, 21)
    assert asked == {"segment_infos_of_streams": 1}


def test_a_stream_that_cannot_be_asked_about_keeps_no_other_one_back(
    source: Source, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(3):
        source.add(f"orders-{index}", index, index + 1)
    query = Query(source.reader(fail_on_data_loss="false"))
    assert rows_of(query.step()) == numbered(0, 3)

    def refused(*arguments: object) -> None:
        raise StreamNotFound.of("s", "orders-1")

    monkeypatch.setattr(source.streams.gateway, "segment_infos_of_streams", refused)
    source.add("orders-2", 6, 7)
    asked.clear()
    assert rows_of(query.step()) == numbered(6, 7)
    assert asked == {"segment_infos": 3}, "each asks for itself then"
