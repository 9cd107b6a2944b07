"""Runs the official connector's check list: streaming reads, their starts, restarts and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import expr

from tests.spark.batches import Batches, assert_same, events, frame, key_of_each_segment
from tests.spark.streams import Streams

event_bytes = 14
"""Size of an event of ``streams.fill`` with its header."""
LIMITS: list[dict[str, Any]] = [{}, {"approx_bytes_per_trigger": 1}, {"approx_bytes_per_trigger": 10}]
LIMITS += [{"approx_bytes_per_trigger": 1000}]


def named(limit: dict[str, Any]) -> str:
    return str(limit.get("approx_bytes_per_trigger", "unlimited"))


# Starts, with and without a limit


@pytest.mark.parametrize("limit", LIMITS, ids=named)
def test_from_latest(streams: Streams, limit: dict[str, Any]) -> None:
    """Only what is written after the start; what is written while the query is stopped arrives, and nothing twice."""
    streams.create("t", 3)
    streams.fill("t", 0, 10)
    read = Batches(streams, streams.stream("t", start_stream_cut="latest", **limit).load()).start()
    read.catch_up()
    read.expect()
    streams.fill("t", 10, 16)
    read.catch_up()
    read.expect(range(10, 16))
    read.stop()
    streams.fill("t", 16, 22)
    read.start().catch_up()
    read.expect(range(10, 22))
    streams.fill("t", 22, 24)
    read.catch_up()
    read.expect(range(10, 24))


@pytest.mark.parametrize("limit", [LIMITS[0], *LIMITS[2:]], ids=named)
def test_from_earliest(streams: Streams, limit: dict[str, Any]) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 10)
    read = Batches(streams, streams.stream("t", **limit).load()).start()
    read.catch_up()
    read.expect(range(10))
    streams.fill("t", 10, 16)
    read.catch_up()
    read.stop()
    read.expect(range(16))
    streams.fill("t", 16, 22)
    read.start().catch_up()
    read.expect(range(22))


@pytest.mark.parametrize("limit", [LIMITS[0], LIMITS[2]], ids=named)
def test_from_a_stream_cut(streams: Streams, limit: dict[str, Any]) -> None:
    """Events before the cut are left out in every segment, also after a restart."""
    streams.create("t", 3)
    streams.fill("t", 0, 20)
    cut = streams.tail("t")
    streams.fill("t", 20, 30)
    read = Batches(streams, streams.stream("t", start_stream_cut=cut, **limit).load()).start()
    read.catch_up()
    read.expect(range(20, 30))
    read.stop()
    streams.fill("t", 30, 36)
    read.start().catch_up()
    read.expect(range(20, 36))
    assert {row.segment_id for row in read.rows} == {0, 1, 2}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({"START_STREAM_CUT": " EARLIEST "}, range(20)),
        ({"startStreamCut": "Unbounded", "EndStreamCut": "UNBOUNDED"}, range(20)),
        ({"Start_Stream_Cut": "{first}", "End_Stream_Cut": "{second}"}, range(5, 15)),
        ({"startstreamcut": "{second}", "endstreamcut": "Latest"}, range(15, 20)),
        ({"start_stream_cut": "LATEST"}, range(0)),
        ({}, range(0)),
    ],
    ids=["earliest", "unbounded", "cuts", "cut", "latest", "default"],
)
def test_limits_in_any_spelling(streams: Streams, given: dict[str, str], numbers: range) -> None:
    streams.create("t", 2)
    streams.fill("t", 0, 5)
    first = streams.tail("t")
    streams.fill("t", 5, 15)
    second = streams.tail("t")
    streams.fill("t", 15, 20)
    options = {name: text.format(first=first, second=second) for name, text in given.items()}
    rows = streams.spark.readStream.format("Pravega").options(**streams.options("t"), **options).load()
    read = Batches(streams, rows).start(availableNow=True)
    assert read.query.awaitTermination(60)
    read.expect(numbers)


# Starting, stopping, scaling, losing


def test_stopped_before_anything_was_read(streams: Streams) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 5)
    read = Batches(streams, streams.stream("t", start_stream_cut="latest").load()).start()
    read.stop()
    assert read.query.exception() is None
    read.expect()


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 5)])
def test_restarted_right_after_the_start(streams: Streams, start: str, first: int) -> None:
    """The initial position goes through the checkpoint and comes back."""
    streams.create("t", 3)
    streams.fill("t", 0, 5)
    read = Batches(streams, streams.stream("t", start_stream_cut=start).load()).start()
    read.catch_up()
    read.stop()
    read.start()
    read.catch_up()
    streams.fill("t", 5, 10)
    read.catch_up()
    read.expect(range(first, 10))


def test_segments_added_while_it_reads(streams: Streams) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 30)
    read = Batches(streams, streams.stream("t", approx_bytes_per_trigger=300).load()).start()
    read.catch_up()
    sixths = [(index / 6, (index + 1) / 6) for index in range(6)]
    made = streams.gateway.scale_stream(streams.scope, "t", [0, 1, 2], sixths)
    streams.write(streams.rows(30, 90, keys=60), "t")
    read.catch_up()
    read.expect(range(90))
    assert {row.segment_id for row in read.rows} > {item.segment_id for item in made}


@pytest.mark.parametrize("fails", [False, True], ids=["goes-on", "stops"])
def test_from_a_cut_in_a_truncated_stream(streams: Streams, fails: bool) -> None:
    """The cut lies before what is left: the query goes on after the hole, and so it does when it is started again."""
    streams.create("t", 3)
    head = streams.tail("t")
    streams.fill("t", 0, 30)
    left = streams.gateway.tail_cut(streams.scope, "t")
    streams.fill("t", 30, 60)
    streams.gateway.truncate_stream(streams.scope, "t", left)
    options = {"start_stream_cut": head, "approx_bytes_per_trigger": 10, "fail_on_data_loss": str(fails).lower()}
    read = Batches(streams, streams.stream("t", **options).load()).start()
    if fails:
        with pytest.raises(
            StreamingQueryException, match=r"was lost before it was read: segment 0\.#epoch\.0 from offset 0, "
        ):
            read.catch_up()
        read.expect()
        return
    read.catch_up()
    read.expect(range(30, 60))
    read.stop()
    streams.fill("t", 60, 70)
    read.start().catch_up()
    read.expect(range(30, 70))


# Batches of about a number of bytes


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(1, [3, 3, 3]), (10, [3, 3, 3]), (30, [3, 3, 3]), (33, [6, 3]), (100, [9]), (2**63 - 1, [9])],
)
def test_batches_of_bytes(streams: Streams, limit: int, sizes: list[int]) -> None:
    """Three segments with three events of ten bytes (header and all): each batch takes at least one of each segment."""
    streams.create("t", 3)
    keys = key_of_each_segment(streams, "t")
    for turn in range(3):
        rows = [(f"{turn}{number}", key) for number, key in enumerate(keys)]
        streams.write(streams.spark.createDataFrame(rows, "event string, routing_key string"), "t")
    read = Batches(streams, streams.stream("t", approx_bytes_per_trigger=limit).load()).start()
    read.catch_up()
    assert read.sizes == sizes
    texts = (f"{turn}{number}" for turn in range(3) for number in range(3))
    assert_same(frame(streams, (bytes(row.event).decode() for row in read.rows)), frame(streams, texts))
    assert {row.segment_id for row in read.rows[: read.sizes[0]]} == {0, 1, 2}


# Columns, metrics, plans


def test_columns(streams: Streams) -> None:
    streams.create("t")
    streams.fill("t", 0, 3)
    rows = streams.stream("t").load()
    read = Batches(streams, rows).start(availableNow=True)
    assert read.query.awaitTermination(60)
    expected = [
        (bytearray(f"{number:06}".encode()), streams.scope, "t", 0, number * event_bytes) for number in range(3)
    ]
    schema = "event binary, scope string, stream string, segment_id bigint, offset bigint"
    assert_same(streams.spark.createDataFrame(read.rows, rows.schema), streams.spark.createDataFrame(expected, schema))


def test_rows_in_the_progress(streams: Streams) -> None:
    streams.create("t", 3)
    streams.fill("t", 0, 30)
    read = Batches(streams, streams.stream("t", approx_bytes_per_trigger=5 * event_bytes).load()).start()
    read.catch_up()
    streams.fill("t", 30, 40)
    read.catch_up()
    counted = [progress["numInputRows"] for progress in read.query.recentProgress if progress["numInputRows"]]
    assert counted == read.sizes
    assert sum(counted) == 40


def test_joined_with_itself(streams: Streams, tmp_path: Path) -> None:
    """One source that is read once: one offset in the log (on a line for each side), rows counted once."""
    streams.create("t", 3)
    streams.fill("t", 0, 20)
    rows = streams.stream("t").load().selectExpr("cast(event as string) as event")
    joined = rows.alias("left").join(rows.alias("right"), expr("left.event = right.event")).selectExpr("left.event")
    writer = joined.writeStream.format("parquet").option("path", str(tmp_path / "joined"))
    started = writer.option("checkpointLocation", str(tmp_path / "log")).trigger(availableNow=True).start()
    query = streams.keep(started)
    assert query.awaitTermination(120)
    assert_same(streams.spark.read.parquet(str(tmp_path / "joined")), events(streams, range(20)))
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 20
    assert {len(progress["sources"]) for progress in query.recentProgress} == {1}
    _, _, *offsets = (tmp_path / "log" / "offsets" / "0").read_text().splitlines()
    assert len(set(offsets)) == 1
