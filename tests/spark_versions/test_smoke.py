"""The connector on the Spark that is installed: what it serves works, what it lacks is refused by name."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import udf

from pravega_spark.spark_version import ADMISSION_CONTROL, PUSHED_FILTERS, has
from tests.spark.streams import Streams

copied = 4_000


def test_batch_in_and_out(streams: Streams) -> None:
    streams.create("a", 2)
    streams.fill("a", 0, 1_000)
    streams.fill("a", 1_000, 1_500, txn_app_id="app", txn_version="1")
    streams.fill("a", 1_000, 1_500, txn_app_id="app", txn_version="1")  # a second run writes nothing
    assert streams.numbers("a") == list(range(1_500))
    rows = streams.read("a").where("segment_id >= 0 and offset >= 0")
    assert rows.count() == 1_500
    assert {row.routing for row in rows.selectExpr("cast(segment_id as string) as routing").distinct().collect()}


def test_threads_of_the_driver_write(streams: Streams) -> None:
    """As docs/faq.md says: a thread needs an active session, or Spark looks only for sources in the JVM."""
    streams.create("a", 2)
    session = streams.spark

    def make_session_active() -> None:
        session.createDataFrame([], "id int")

    with ThreadPoolExecutor(2, initializer=make_session_active) as threads:
        list(threads.map(lambda first: streams.fill("a", first, first + 100), range(0, 400, 100)))
    assert streams.numbers("a") == list(range(400))


def test_a_streaming_copy_that_fails_and_goes_on(streams: Streams) -> None:
    """Exactly once, over restarts of the query, a task that dies late and a scaling."""
    streams.create("in", 2)
    streams.create("out", 2)
    fuse = streams.folder / "fuse"

    def passed(event: str) -> str:
        if event == "002500" and not fuse.exists():
            fuse.touch()
            os._exit(1)
        return event

    def run() -> None:
        rows = streams.stream("in", order="none").load()
        streams.run(rows.select(udf(passed)(rows.event.cast("string")).alias("event")), "out")

    streams.fill("in", 0, 1_000)
    run()
    streams.gateway.scale_stream(streams.scope, "in", [0, 1], [(0.0, 0.3), (0.3, 1.0)])
    streams.fill("in", 1_000, copied)
    with pytest.raises(StreamingQueryException):
        run()
    run()
    run()
    assert fuse.exists()
    assert streams.numbers("out") == list(range(copied))


def test_latest_starts_where_the_query_did(streams: Streams) -> None:
    streams.create("in")
    streams.create("out")
    streams.fill("in", 0, 10)
    rows = streams.stream("in", order="none", start_stream_cut="latest").load().select("event")
    query = streams.start(rows, "out", "checkpoint", {"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    streams.fill("in", 10, 20)
    query.processAllAvailable()
    query.stop()
    assert streams.numbers("out") == list(range(10, 20))


def test_a_streaming_copy_of_records(streams: Streams) -> None:
    """Keys, tombstones, headers and times, also where a sink is handed rows (4.0)."""
    rows = streams.spark.range(200).selectExpr(
        "cast(concat('k', id % 5) as binary) as key",
        "if(id % 7 = 0, null, cast(cast(id as string) as binary)) as value",
        "if(id % 3 = 0, null, array(named_struct('key', 'h', 'value', cast('x' as binary)))) as headers",
        "timestamp_micros(1700000000000000 + id * 1001) as timestamp",
    )
    streams.write(rows, "in", format="record")
    streams.create("out", 2)
    streams.run(streams.stream("in", order="none", format="record").load(), "out", format="record")
    copied_rows = streams.read("out", format="record").select(rows.columns)
    assert sorted(map(repr, copied_rows.collect())) == sorted(map(repr, rows.collect()))


@pytest.mark.skipif(has(ADMISSION_CONTROL), reason="this Spark limits batches")
@pytest.mark.parametrize("option", ["max_events_per_trigger", "approx_bytes_per_trigger"])
def test_limits_are_refused_by_the_version_that_has_them(streams: Streams, option: str) -> None:
    streams.create("in")
    streams.create("out")
    rows = streams.stream("in", order="none", **{option: "10"}).load().select("event")
    with pytest.raises(Exception, match=rf"'{option}'.* needs Spark 4\.2, this is 4\."):
        streams.run(rows, "out")


@pytest.mark.skipif(has(ADMISSION_CONTROL), reason="this Spark keeps the order")
def test_order_over_scalings_is_refused_by_the_version_that_has_it(streams: Streams) -> None:
    streams.create("in")
    streams.create("out")
    rows = streams.stream("in").load().select("event")
    with pytest.raises(Exception, match=r"needs Spark 4\.2, this is 4\..*order=none"):
        streams.run(rows, "out")


@pytest.mark.skipif(has(PUSHED_FILTERS), reason="this Spark pushes filters")
def test_pushed_filters_are_refused_by_the_version_that_has_them(streams: Streams) -> None:
    streams.create("in")
    with pytest.raises(Exception, match=r"'push_filters' needs Spark 4\.1, this is 4\.0"):
        streams.read("in", push_filters="true").count()
