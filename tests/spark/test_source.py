"""Reads streams on running services."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from pravega_spark import lag
from tests.spark.batches import Batches
from tests.spark.streams import Streams, wait_s
from tests.support.eventually import eventually_blocking

AVAILABLE_NOW = {"availableNow": True}


def finish(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(60)
    return query


def read_rows(query: StreamingQuery) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_earliest_and_what_comes_later(streams: Streams) -> None:
    streams.fill("t", 0, 100, default_num_segments=3)
    query = streams.collect(streams.stream("t").load(), "earliest")
    query.processAllAvailable()
    streams.fill("t", 100, 200)
    query.processAllAvailable()
    assert sorted(int(event) for event in streams.collected("earliest")) == list(range(200))
    assert read_rows(query) == 200


def test_latest_is_the_default(streams: Streams) -> None:
    streams.fill("t", 0, 100)
    reader = streams.spark.readStream.format("pravega").options(**streams.options("t"))
    query = streams.collect(reader.load(), "latest")
    query.processAllAvailable()
    streams.fill("t", 100, 110)
    query.processAllAvailable()
    assert sorted(int(event) for event in streams.collected("latest")) == list(range(100, 110))


def test_a_first_batch_without_rows_that_failed(streams: Streams) -> None:
    """Spark runs it all the same; the query goes on where it first started, and not at the later ``latest``."""
    streams.fill("t", 0, 10)
    rows = streams.spark.readStream.format("pravega").options(**streams.options("t")).load()

    def refuse(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("not this one")

    writer = rows.writeStream.foreachBatch(refuse).option("checkpointLocation", str(streams.folder / "batches"))
    with pytest.raises(StreamingQueryException, match="not this one"):
        finish(streams.keep(writer.trigger(**AVAILABLE_NOW).start()))
    streams.fill("t", 10, 20)
    batches = Batches(streams, rows).start(**AVAILABLE_NOW)
    finish(batches.query)
    batches.expect(range(10, 20))


def test_start_and_end_at_stream_cuts(streams: Streams) -> None:
    streams.fill("t", 0, 10, default_num_segments=2)
    first = streams.tail("t")
    streams.fill("t", 10, 20)
    last = streams.tail("t")
    streams.fill("t", 20, 30)
    rows = streams.stream("t", start_stream_cut=first, end_stream_cut=last).load()
    query = streams.collect(rows, "cuts")
    query.processAllAvailable()
    assert sorted(int(event) for event in streams.collected("cuts")) == list(range(10, 20))


def test_restarts_continue(streams: Streams) -> None:
    streams.create("from", 2)
    for round_number in range(3):
        streams.fill("from", round_number * 100, round_number * 100 + 100)
        query = streams.run(streams.stream("from").load().select("event"), "to")
        assert read_rows(query) == 100
    assert streams.numbers("to") == list(range(300))
    assert read_rows(streams.run(streams.stream("from").load().select("event"), "to")) == 0


def test_byte_limit_with_available_now(streams: Streams) -> None:
    streams.create("from", 3)
    for number in range(10):
        streams.fill("from", number * 30, number * 30 + 30)
    rows = streams.stream("from", approx_bytes_per_trigger=1000).load().select("event")
    query = streams.run(rows, "to")
    assert streams.numbers("to") == list(range(300))
    assert read_rows(query) == 300


def test_progress_says_what_is_left(streams: Streams) -> None:
    streams.fill("t", 0, 10)
    query = streams.collect(streams.stream("t").load(), "progress")
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    source = json.loads(progress.json)["sources"][0]
    latest = source["latestOffset"]
    assert (json.loads(latest) if isinstance(latest, str) else latest)["lag_bytes"] == 0


def test_scale_up_and_down_in_mid_query(streams: Streams) -> None:
    """Every event once, and the events of a key in order, batch after batch."""
    streams.create("t")
    query = streams.collect(streams.stream("t").load(), "scaled")
    current = [0]
    for step, ranges in enumerate([[(0.0, 0.5), (0.5, 1.0)], [(0.0, 1.0)], [(0.0, 0.3), (0.3, 1.0)]]):
        streams.write(streams.rows(step * 100, step * 100 + 100).coalesce(1), "t")
        made = streams.gateway.scale_stream(streams.scope, "t", current, ranges)
        current = [item.segment_id for item in made]
    streams.write(streams.rows(300, 400).coalesce(1), "t")
    query.processAllAvailable()
    numbers = [int(event) for event in streams.collected("scaled")]
    assert sorted(numbers) == list(range(400))
    for key in range(10):
        of_key = [number for number in numbers if number % 10 == key]
        assert of_key == sorted(of_key)


def test_several_streams(streams: Streams) -> None:
    streams.fill("a", 0, 10)
    streams.fill("b", 10, 20)
    query = streams.collect(streams.stream("a,b").load(), "several", **AVAILABLE_NOW)
    finish(query)
    assert sorted(int(event) for event in streams.collected("several")) == list(range(20))
    assert set(streams.collected("several", "stream")) == {"a", "b"}


def pattern(streams: Streams, **more: str) -> DataFrame:
    given = {name: text for name, text in streams.options("", **more).items() if name != "stream"}
    found = {"stream_pattern": "orders-.*", "start_stream_cut": "earliest", "stream_discovery_interval": "1s"}
    return streams.spark.readStream.format("pravega").options(**found, **given).load()


def test_new_streams_of_a_pattern(streams: Streams) -> None:
    """One that is made while the query runs, one while it is stopped; none is read twice after the restart."""
    streams.fill("orders-1", 0, 10)
    streams.fill("others", 100, 110)
    rows = pattern(streams).select("event")
    query = streams.start(rows, "to", "checkpoint", {"processingTime": "0 seconds"})
    query.processAllAvailable()
    assert streams.numbers("to") == list(range(10))
    streams.fill("orders-2", 10, 20)
    eventually_blocking(lambda: streams.numbers("to") == list(range(20)), "the events of the new stream", wait_s)
    query.stop()
    streams.fill("orders-2", 20, 30)
    streams.fill("orders-3", 30, 40)
    assert read_rows(streams.run(rows, "to")) == 20
    assert streams.numbers("to") == list(range(40))


def test_one_batch_over_five_scalings(streams: Streams) -> None:
    """With ``order=none`` one trigger reads all, with a limit several do; one that keeps the order takes six."""
    streams.create("t")
    current = [0]
    layouts = [[0.0, 0.5, 1.0], [0.0, 1.0], [0.0, 0.3, 0.6, 1.0], [0.0, 0.5, 1.0], [0.0, 1.0], []]
    for step, borders in enumerate(layouts):
        streams.fill("t", step * 20, step * 20 + 20)
        if borders:
            made = streams.gateway.scale_stream(streams.scope, "t", current, list(itertools.pairwise(borders)))
            current = [item.segment_id for item in made]
    counts = []
    ways: dict[str, dict[str, Any]] = {
        "none": {"order": "none"},
        "limited": {"order": "none", "max_events_per_trigger": 50},
        "key": {},
    }
    for name, options in ways.items():
        query = finish(streams.collect(streams.stream("t", **options).load(), name, **AVAILABLE_NOW))
        assert sorted(int(event) for event in streams.collected(name)) == list(range(120))
        counts.append(sum(progress["numInputRows"] > 0 for progress in query.recentProgress))
    assert counts[0] == 1 and 3 <= counts[1] <= 5 and counts[2] == 6


def test_the_time_at_which_events_were_taken(streams: Streams) -> None:
    """Between the write that has it and a moment after that; to a batch read when the index knows it, and at once."""
    streams.create("t")
    moments = [time.time()]
    for step in range(2):
        streams.fill("t", step * 50, step * 50 + 50)
        moments.append(time.time())
    query = finish(streams.collect(streams.stream("t", ingest_time="true").load(), "times", **AVAILABLE_NOW))
    assert read_rows(query) == 100
    batch = streams.spark.read.format("pravega").schema("ingest_time timestamp, event string")
    for rows in (streams.spark.table("times"), batch.options(**streams.options("t")).load()):
        taken = [(row.ingest_time.timestamp(), int(row.event)) for row in rows.select("ingest_time", "event").collect()]
        assert all(moments[0] - 0.01 <= at <= time.time() for at, _ in taken)
        assert all(at >= moments[1] - 0.01 for at, number in taken if number >= 50)
    # What the index knows does not change any more: the first write was known before the second one ended.
    first = batch.options(**streams.options("t")).load().where("event < '000050'").collect()
    assert len(first) == 50 and all(row.ingest_time.timestamp() <= moments[1] + 0.01 for row in first)


def test_self_join_reads_once(streams: Streams) -> None:
    streams.fill("t", 0, 20)
    events = streams.stream("t").load().selectExpr("cast(event as string) as event")
    joined = events.alias("left").join(events.alias("right"), expr("left.event = right.event"))
    query = finish(streams.collect(joined.selectExpr("left.event"), "joined", **AVAILABLE_NOW))
    assert sorted(int(event) for event in streams.collected("joined")) == list(range(20))
    assert len(query.recentProgress[0]["sources"]) == 1
    assert read_rows(query) == 20


@pytest.mark.parametrize("fails", [True, False])
def test_truncated_before_it_was_read(streams: Streams, fails: bool) -> None:
    streams.create("from")
    rows = streams.stream("from", fail_on_data_loss=str(fails).lower()).load().select("event")
    streams.fill("from", 0, 10)
    streams.run(rows, "to")
    streams.fill("from", 10, 20)
    cut = streams.gateway.tail_cut(streams.scope, "from")
    streams.fill("from", 20, 30)
    streams.gateway.truncate_stream(streams.scope, "from", cut)
    if fails:
        with pytest.raises(
            StreamingQueryException, match=r"was lost before it was read: segment 0\.#epoch\.0 from offset 140"
        ):
            streams.run(rows, "to")
    else:
        streams.run(rows, "to")
        assert streams.numbers("to") == [*range(10), *range(20, 30)]


def test_damaged_checkpoint(streams: Streams, tmp_path: Path) -> None:
    streams.fill("from", 0, 10)
    rows = streams.stream("from").load().select("event")
    streams.run(rows, "to")
    (log,) = (tmp_path / "checkpoint" / "offsets").glob("0")
    log.write_text(
        log.read_text()
        .replace('"version": 2', '"version": 9')
        .replace('"version":2,"streams"', '"version":9,"streams"')
    )
    (log.parent / ".0.crc").unlink(missing_ok=True)
    streams.fill("from", 10, 20)
    with pytest.raises(StreamingQueryException, match="offset has version 9, this connector reads versions 1 to 2"):
        streams.run(rows, "to")


def test_stop_before_anything_was_read(streams: Streams) -> None:
    streams.create("t")
    query = streams.collect(streams.stream("t", start_stream_cut="latest").load(), "stopped")
    query.stop()
    assert query.exception() is None


def test_order_over_real_scaling_with_limits(streams: Streams, tmp_path: Path) -> None:
    """A query with an event limit, while the stream is scaled up and down under it and written to."""
    streams.create("from")
    rows = streams.stream("from", max_events_per_trigger=70, approx_bytes_per_trigger=2000).load()
    keyed = rows.selectExpr("event", "concat('k', cast(cast(event as string) as int) % 10) as routing_key")
    query = streams.start(keyed, "to", "limited", {"processingTime": "0 seconds"})
    current = [0]
    for step, ranges in enumerate([[(0.0, 0.5), (0.5, 1.0)], [(0.0, 0.2), (0.2, 0.6), (0.6, 1.0)], [(0.0, 1.0)]]):
        streams.write(streams.rows(step * 100, step * 100 + 100).coalesce(1), "from")
        made = streams.gateway.scale_stream(streams.scope, "from", current, ranges)
        current = [item.segment_id for item in made]
    streams.write(streams.rows(300, 400).coalesce(1), "from")
    query.processAllAvailable()
    left = lag(query.lastProgress)
    assert left is not None and (left.bytes, left.events) == (0, 0)
    assert max(progress["numInputRows"] for progress in query.recentProgress) <= 70
    query.stop()
    streams.write(streams.rows(400, 500).coalesce(1), "from")
    streams.run(keyed, "to", "limited")
    read = streams.read("to").orderBy("segment_id", "offset").collect()
    numbers = [int(bytes(row.event)) for row in read]
    assert sorted(numbers) == list(range(500))
    for key in range(10):
        of_key = [number for number in numbers if number % 10 == key]
        assert of_key == sorted(of_key)


def test_streams_as_paths_and_by_time(streams: Streams) -> None:
    streams.fill("a", 0, 10)
    streams.fill("b", 10, 20)
    reader = streams.spark.read.format("pravega").option("controller", streams.controller)
    both = reader.load([f"{streams.scope}/a", f"{streams.scope}/b"])
    assert sorted(int(bytes(row.event)) for row in both.collect()) == list(range(20))
    later = streams.spark.read.format("pravega").option("controller", streams.controller)
    assert later.option("start_time", "2999-01-01T00:00:00Z").load(f"{streams.scope}/a").count() == 0
    assert later.option("start_time", "2001-01-01").load(f"{streams.scope}/a").count() == 10


def test_filters_that_are_pushed(streams: Streams) -> None:
    streams.fill("a", 0, 100, default_num_segments=2)
    with pytest.raises(Exception, match=r"'push_filters' is 'true', which needs the optional jar.*push_filters=once"):
        streams.read("a", push_filters="true").collect()
    reader = streams.read("a", push_filters="once")
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        reader.where("segment_id = 1").collect()
    streams.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = streams.read("a", push_filters="once").where("segment_id = 1 and offset >= 140 and stream = 'a'")
        plain = streams.read("a").where("segment_id = 1 and offset >= 140")
        assert pushed.rdd.getNumPartitions() == 1
        assert sorted(pushed.collect()) == sorted(plain.collect())
        frame = streams.read("a", push_filters="once")
        counted = frame.where("segment_id = 0").count()
        assert frame.count() == counted < 100, "Spark plans each use of a frame by itself now: true needs no jar"
    finally:
        streams.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
