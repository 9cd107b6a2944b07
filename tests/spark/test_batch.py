"""Reads and writes batches on running services."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

import pravega_spark
from pravega_common.errors import InvalidArgument
from pravega_common.stream_cut import StreamCut
from tests.spark.streams import Streams


def test_out_and_in(streams: Streams) -> None:
    streams.fill("t", 0, 1000, default_num_segments=3)
    frame = streams.read("t")
    assert [field.simpleString() for field in frame.schema] == [
        "event:binary",
        "scope:string",
        "stream:string",
        "segment_id:bigint",
        "offset:bigint",
    ]
    assert streams.numbers("t") == list(range(1000))
    rows = frame.selectExpr("cast(event as string) event", "scope", "stream", "segment_id", "offset").collect()
    assert {(row.scope, row.stream) for row in rows} == {(streams.scope, "t")}
    assert len({row.segment_id for row in rows}) == 3
    for row in rows:
        assert row.offset % 14 == 0
    streams.fill("t", 1000, 1500)
    assert streams.numbers("t") == list(range(1500))


def test_keys_keep_their_order(streams: Streams) -> None:
    streams.write(streams.rows(0, 2000).coalesce(1), "t", default_num_segments=4)
    rows = streams.read("t").orderBy("segment_id", "offset").collect()
    per_key: dict[int, list[int]] = {}
    for row in rows:
        number = int(bytes(row.event))
        per_key.setdefault(number % 10, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in per_key.values())


def test_columns_in_any_choice(streams: Streams) -> None:
    streams.fill("t", 0, 10)
    frame = streams.spark.read.format("pravega").options(**streams.options("t"))
    assert sorted(row.event for row in frame.schema("event string").load().collect()) == [
        f"{number:06}" for number in range(10)
    ]
    swapped = frame.schema("offset bigint, stream string, event binary").load()
    assert swapped.columns == ["offset", "stream", "event"]
    assert sorted(row.offset for row in swapped.collect()) == list(range(0, 140, 14))
    assert frame.schema("segment_id bigint").load().count() == 10


def test_stream_cuts(streams: Streams) -> None:
    streams.create("t", 2)
    head = streams.tail("t")
    streams.fill("t", 0, 100)
    middle = streams.tail("t")
    streams.fill("t", 100, 200)
    tail = streams.tail("t")
    assert streams.numbers("t", start_stream_cut=head, end_stream_cut=middle) == list(range(100))
    assert streams.numbers("t", start_stream_cut=middle, end_stream_cut=tail) == list(range(100, 200))
    assert streams.numbers("t", start_stream_cut=middle, end_stream_cut="latest") == list(range(100, 200))
    assert streams.numbers("t", startStreamCut="earliest", endStreamCut=middle) == list(range(100))
    same = streams.read("t", end_stream_cut=middle)
    assert same.union(same).count() == 200


def test_the_cut_that_a_read_up_to_latest_used(streams: Streams) -> None:
    """It is chosen once, for the frame and what is made of it; a stream goes on there without a gap."""
    streams.create("t", 3)
    streams.create("empty")
    streams.fill("t", 0, 100)
    frame = streams.read(f"{streams.scope}/t,{streams.scope}/empty")
    assert frame.count() == 100
    streams.fill("t", 100, 150)
    told = pravega_spark.cut_of(frame)
    assert pravega_spark.cut_of(frame.filter("offset >= 0").select("event")) == told
    assert frame.count() == 100
    assert {StreamCut.from_text(text).stream for text in told.split(",")} == {"t", "empty"}
    rest = streams.numbers(
        "t", start_stream_cut=next(t for t in told.split(",") if StreamCut.from_text(t).stream == "t")
    )
    assert rest == list(range(100, 150))
    # Of a frame that nobody used it is chosen now.
    unused = streams.read("t")
    cut = pravega_spark.cut_of(unused)
    assert cut == streams.tail("t")
    streams.fill("t", 150, 160)
    assert unused.count() == 150 and pravega_spark.cut_of(unused) == cut
    streams.create("to", 3)
    copied = (
        streams.stream("t", start_stream_cut=cut).load().selectExpr("event", "cast(segment_id as string) routing_key")
    )
    streams.run(copied, "to")
    assert streams.numbers("to") == list(range(150, 160))
    with pytest.raises(InvalidArgument, match="up to different ends"):
        pravega_spark.cut_of(frame.select("event").union(unused.select("event")))
    with pytest.raises(InvalidArgument, match="reads no stream of format pravega as a batch"):
        pravega_spark.cut_of(streams.rows(0, 5))


def test_over_a_scale(streams: Streams) -> None:
    streams.create("t")
    streams.fill("t", 0, 50)
    before = streams.tail("t")
    low, high = streams.gateway.scale_stream(streams.scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    streams.fill("t", 50, 100)
    assert streams.numbers("t") == list(range(100))
    assert streams.numbers("t", start_stream_cut=before) == list(range(50, 100))
    ids = {row.segment_id for row in streams.read("t").select("segment_id").distinct().collect()}
    assert ids == {0, low.segment_id, high.segment_id}


def test_empty_stream_and_empty_write(streams: Streams) -> None:
    with pytest.raises(PySparkException, match="scope does not exist"):
        streams.numbers("t")
    streams.fill("t", 0, 0)
    assert streams.numbers("t") == []
    with pytest.raises(PySparkException, match=f"stream does not exist: '{streams.scope}/tt', did you mean '.*/t'"):
        streams.numbers("tt")
    assert streams.gateway.list_streams(streams.scope) == ["t"]


def test_metadata(streams: Streams) -> None:
    streams.fill("a", 0, 10, default_num_segments=2)
    streams.fill("b", 0, 1)
    (info,) = streams.read("a", metadata="StreamInfo").collect()
    assert info.tail_stream_cut == streams.tail("a")
    assert StreamCut.from_text(info.head_stream_cut).offsets == {0: 0, 1: 0}
    listed = streams.read("a", metadata="streams").collect()
    assert [(row.scope_name, row.stream_name) for row in listed] == [(streams.scope, "a"), (streams.scope, "b")]


def test_events_of_every_size(streams: Streams) -> None:
    sizes = [0, 1, 8, 1000, 100_000, 3_000_000, 8 * 1024 * 1024]
    frame = streams.spark.createDataFrame([(bytearray(size),) for size in sizes], "event binary").coalesce(1)
    streams.write(frame, "t")
    assert [len(row.event) for row in streams.read("t").orderBy("offset").collect()] == sizes


def test_named_jobs_are_written_once(streams: Streams) -> None:
    for _ in range(2):
        streams.fill("t", 0, 100, job_id="nightly")
        streams.fill("t", 100, 200, txn_app_id="loader", txn_version=3)
    assert streams.numbers("t") == list(range(200))
    with pytest.raises(PySparkException, match=r"was committed with 100 events .* replayed with 90 events"):
        streams.fill("t", 0, 90, job_id="nightly")
    streams.fill("t", 200, 300, txn_app_id="loader", txn_version=4)
    with pytest.raises(PySparkException, match="txn_version must grow with every write under one txn_app_id"):
        streams.fill("t", 100, 200, txn_app_id="loader", txn_version=3)
    assert streams.numbers("t") == list(range(300))


def test_a_failed_job_leaves_nothing(streams: Streams) -> None:
    streams.create("t", 2)
    rows = streams.rows(0, 1000).selectExpr("if(event = '000900', assert_true(false), event) as event")
    with pytest.raises(PySparkException):
        streams.write(rows, "t")
    assert streams.numbers("t") == []


def test_at_least_once(streams: Streams) -> None:
    streams.fill("t", 0, 1000, exactly_once="false", default_num_segments=2)
    assert streams.numbers("t") == list(range(1000))


class TestRefused:
    def fails(
        self, streams: Streams, message: str, columns: str = "'x' as event", mode: str = "append", **more: str
    ) -> None:
        options = streams.options("t", **more)
        with pytest.raises(PySparkException, match=message):
            rows = streams.spark.range(3).selectExpr(columns)
            rows.write.format("pravega").mode(mode).options(**options).save()

    def test_null_events(self, streams: Streams) -> None:
        self.fails(streams, "events are null", "if(id = 1, null, 'x') as event")
        assert streams.numbers("t") == []

    def test_too_large_events(self, streams: Streams) -> None:
        self.fails(streams, "larger than 8388608 bytes, the largest has 9000000", "repeat('x', 9000000) as event")

    def test_columns(self, streams: Streams) -> None:
        self.fails(streams, "required attribute 'event' not found", "'x' as text")
        self.fails(streams, "event attribute type must be a string or binary", "1 as event")

    def test_modes(self, streams: Streams) -> None:
        self.fails(streams, r"cannot be overwritten; use mode\('append'\), after truncating", mode="overwrite")
        for mode in ("ignore", "error"):
            with pytest.raises(AnalysisException):
                streams.rows(0, 1).write.format("pravega").mode(mode).options(**streams.options("t")).save()

    def test_options(self, streams: Streams) -> None:
        self.fails(streams, "unknown option 'scop'; did you mean 'scope'", scop="x")
        self.fails(streams, "must be a whole number of at least 1", default_num_segments="x")
        with pytest.raises(PySparkException, match="missing required option 'scope'"):
            streams.spark.read.format("pravega").load().count()
        with pytest.raises(PySparkException, match="is no position"):
            streams.read("t", start_stream_cut="nonsense").count()
        with pytest.raises(PySparkException, match="only a streaming read"):
            streams.read("t", start_stream_cut="latest").count()

    def test_missing_stream_that_must_not_be_created(self, streams: Streams) -> None:
        self.fails(streams, "scope does not exist", allow_create_scope="false")
        streams.create("other")
        self.fails(streams, "stream does not exist", allow_create_stream="false")

    def test_read_schema(self, streams: Streams) -> None:
        reader = streams.spark.read.format("pravega").options(**streams.options("t"))
        with pytest.raises(PySparkException, match="the source has no column 'key'"):
            reader.schema("key string").load().count()

    def test_unreachable_controller(self, streams: Streams) -> None:
        with pytest.raises(PySparkException, match=r"no controller answers at 127\.0\.0\.1:1 "):
            streams.read("t", controller="tcp://127.0.0.1:1").count()
