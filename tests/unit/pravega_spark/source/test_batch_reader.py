"""Batch reads over the fake: splitting and loss; times are in ``test_stream_reader``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from pravega_common.errors import ConfigurationError, DataCorruption
from pravega_common.stream_cut import StreamCut
from pravega_spark.datasource import stream_reader
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source import batch_reader
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.partition_reader import SpanPartition
from pravega_spark.source.range_planner import Span
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary())])


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"event-%04d" % number for number in range(first, last)]


def batch(streams: FakeStreams, **given: str) -> BatchReader:
    options = {"controller": streams.controller, "scope": "s", "stream": "t", **given}
    return BatchReader(ReadOptions.parse(options, Use.BATCH_READ), SCHEMA)


def parts(reader: BatchReader) -> list[list[bytes]]:
    """The rows of each partition."""
    return [
        [row for batch in reader.read(partition) for row in batch.column(0).to_pylist()]
        for partition in reader.partitions()
    ]


def test_one_partition_for_each_segment(streams: FakeStreams) -> None:
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 8))
    streams.append("t", 1, numbered(8, 10))
    (third,) = streams.scale("t", [1], [(0.5, 1.0)])
    streams.append("t", third, numbered(10, 11))
    assert parts(batch(streams, min_partitions="1")) == [numbered(0, 8), numbered(8, 10), numbered(10, 11)]
    assert parts(batch(streams)) == [numbered(0, 11)], "small ranges share a partition"


def test_long_ranges_are_split_without_being_asked_to(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "batch_partition_bytes", 54)
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 8))
    streams.append("t", 1, numbered(8, 9))
    assert [len(some) for some in parts(batch(streams))] == [3, 3, 3]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"min_partitions": "4"}, [2, 2, 2, 2]),
        ({"maxPartitionBytes": "54"}, [3, 3, 2]),
        ({"min_partitions": "2", "max_partition_bytes": "36"}, [2, 2, 2, 2]),
        ({"min_partitions": "100"}, [1] * 8),
    ],
)
def test_splitting(streams: FakeStreams, given: dict[str, str], sizes: list[int]) -> None:
    """Between events, whatever is asked for."""
    streams.create("t")
    streams.append("t", 0, numbered(0, 8))
    split = parts(batch(streams, **given))
    assert [len(part) for part in split] == sizes
    assert [event for part in split for event in part] == numbered(0, 8)


def test_empty_streams_have_no_rows(streams: FakeStreams) -> None:
    streams.create("t", 3)
    assert parts(batch(streams, min_partitions="4")) == [[]]


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("deleted", [False, True], ids=["truncated", "deleted"])
def test_lost_before_it_is_planned(streams: FakeStreams, deleted: bool, fails: str) -> None:
    streams.create("t")
    streams.append("t", 0, numbered(0, 4))
    start = StreamCut("s", "t", {0: 18}).as_text()
    if deleted:
        (second,) = streams.scale("t", [0], [(0.0, 1.0)])
        streams.append("t", second, numbered(4, 6))
        streams.gateway.truncate_stream("s", "t", {second: 18})
        left, said = numbered(5, 6), "the segment is deleted"
    else:
        streams.gateway.truncate_stream("s", "t", {0: 54})
        left, said = numbered(3, 4), "the first offset available is 54"
    reader = batch(streams, start_stream_cut=start, fail_on_data_loss=fails)
    if fails == "true":
        with pytest.raises(
            DataCorruption, match=rf"s/t was lost before it was read: segment 0\.#epoch\.0 from offset 18, {said}"
        ):
            reader.partitions()
    else:
        assert [event for part in parts(reader) for event in part] == left


@pytest.mark.parametrize("fails", ["true", "false"])
def test_lost_between_planning_and_reading(streams: FakeStreams, fails: str) -> None:
    streams.create("t")
    streams.append("t", 0, numbered(0, 4))
    reader = batch(streams, fail_on_data_loss=fails)
    (partition,) = reader.partitions()
    assert isinstance(partition, SpanPartition)
    streams.gateway.truncate_stream("s", "t", {0: 54})
    if fails == "true":
        with pytest.raises(
            DataCorruption, match=r"segment 0\.#epoch\.0 from offset 0, the first offset available is 54"
        ):
            list(reader.read(partition))
    else:
        assert [row for rows in reader.read(partition) for row in rows.column(0).to_pylist()] == numbered(3, 4)


def test_a_streaming_read_has_no_metadata(streams: FakeStreams) -> None:
    given = {"controller": streams.controller, "scope": "s", "stream": "t", "metadata": "StreamInfo"}
    reader = stream_reader(given, StructType([StructField("event", BinaryType())]))
    calls: list[Callable[[], object]] = [
        reader.initialOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: list(reader.read(SpanPartition())),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="option 'metadata' is of batch reads"):
            call()
    reader.stop()


def test_a_read_makes_no_stream(streams: FakeStreams) -> None:
    """A mistyped name would give an empty stream and no rows."""
    streams.create("orders")
    for scope, stream, said in (
        ("s", "order", "stream does not exist: 's/order', did you mean 's/orders'"),
        ("s", "x", "stream does not exist: 's/x'; create it, or set allow_create_stream=true"),
        ("nowhere", "x", "scope does not exist: 'nowhere'; create it"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(said)):
            batch(streams, scope=scope, stream=stream).partitions()
    assert streams.gateway.list_streams("s") == ["orders"]
    assert not streams.gateway.scope_exists("nowhere")
    assert parts(batch(streams, stream="new", allow_create_stream="true")) == [[]]
    assert streams.gateway.list_streams("s") == ["new", "orders"]


def test_a_cut_of_a_stream_that_was_replaced(streams: FakeStreams) -> None:
    """The new stream has fewer bytes than the cut says: reading to it would wait for what never comes."""
    streams.create("t")
    streams.append("t", 0, [b"12345678"] * 3)
    cut = StreamCut("s", "t", {0: 4_800}).as_text()
    for option in ("start_stream_cut", "end_stream_cut"):
        with pytest.raises(DataCorruption, match=r"deleted and made again.* offset 4800, but it has 48 bytes"):
            batch(streams, **{option: cut}).partitions()
    spans = batch(streams, end_stream_cut=cut, fail_on_data_loss="false").partitions()
    assert [item.spans[0].end for item in spans if isinstance(item, SpanPartition)] == [48]


def test_a_cut_of_another_stream_of_the_name(streams: FakeStreams) -> None:
    streams.create("t")
    streams.append("t", 0, [b"12345678"] * 3)
    cut = StreamCut("s", "t", streams.gateway.tail_cut("s", "t")).as_text()
    streams.gateway.delete_stream("s", "t")
    streams.create("t")
    (new,) = streams.gateway.tail_cut("s", "t")
    streams.append("t", new, [b"12345678"] * 2)
    for option in ("start_stream_cut", "end_stream_cut"):
        with pytest.raises(DataCorruption, match=r"deleted and made again.* it is not one of its segments"):
            batch(streams, **{option: cut}).partitions()
    spans = batch(streams, start_stream_cut=cut, fail_on_data_loss="false").partitions()
    assert [item.spans for item in spans if isinstance(item, SpanPartition)] == [(Span("s", "t", new, 0, 32),)]
