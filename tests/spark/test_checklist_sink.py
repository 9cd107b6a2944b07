"""Runs the official connector's check list: batch and streaming writes, with transactions and without."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.functions import col, udf

from tests.spark.batches import assert_same, events, frame, read_events
from tests.spark.streams import Streams

both_ways = pytest.mark.parametrize("exactly_once", ["true", "false"], ids=["exactly-once", "at-least-once"])
both_keys = pytest.mark.parametrize("columns", [["event"], ["event", "routing_key"]], ids=["without-key", "with-key"])


@both_ways
@both_keys
def test_batch(streams: Streams, columns: list[str], exactly_once: str) -> None:
    streams.create("t", 3)
    streams.write(streams.rows(0, 5).select(columns), "t", exactly_once=exactly_once)
    assert_same(read_events(streams, "t"), events(streams, range(5)))


@both_ways
@both_keys
def test_two_micro_batches(streams: Streams, columns: list[str], exactly_once: str) -> None:
    """The rows of each batch are there when it ends."""
    streams.create("from", 2)
    rows = streams.stream("from").load().selectExpr("cast(event as string) as event")
    rows = rows.selectExpr("event", "concat('k', cast(event as int) % 3) as routing_key").select(columns)
    for last in (10, 20):
        streams.fill("from", last - 10, last)
        streams.run(rows, "to", exactly_once=exactly_once, default_num_segments=3)
        assert_same(read_events(streams, "to"), events(streams, range(last)))


@both_ways
def test_rows_as_json(streams: Streams, exactly_once: str) -> None:
    """All columns of 999 rows in one expression."""
    table = streams.spark.range(999).selectExpr("id", "concat('name ', id) as name", "id / 8 as part")
    rows = table.selectExpr("to_json(struct(*)) as event")
    streams.write(rows, "t", exactly_once=exactly_once)
    read = read_events(streams, "t")
    assert_same(read.selectExpr(f"from_json(event, '{table.schema.toDDL()}') as row").select("row.*"), table)


def test_a_task_that_fails_late(streams: Streams) -> None:
    """Its neighbour has long written its own part by then; nothing of the job may be seen."""
    streams.create("t", 3)

    @udf("string")
    def fails_in_the_second_half(number: int) -> str:
        if number == 75:
            # Time for the other real task to end, of which this one hears nothing.
            time.sleep(3)
            raise ValueError("fails on purpose")
        return f"{number:06}"

    rows = streams.spark.range(0, 100, 1, 2).select(fails_in_the_second_half(col("id")).alias("event"))
    with pytest.raises(PySparkException, match="fails on purpose"):
        streams.write(rows, "t")
    assert_same(read_events(streams, "t"), frame(streams, []))
    streams.fill("t", 0, 5)
    assert_same(read_events(streams, "t"), events(streams, range(5)))


@pytest.mark.parametrize(
    ("refused", "message"),
    [("allow_create_scope", "scope does not exist: '{scope}'"), ("allow_create_stream", "stream does not exist: ")],
)
@both_ways
def test_what_must_not_be_created(streams: Streams, refused: str, message: str, exactly_once: str) -> None:
    """A query into a scope or a stream that is missing ends at once."""
    if refused == "allow_create_stream":
        streams.gateway.create_scope(streams.scope)
    rows = streams.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    options = {refused: "false", "exactly_once": exactly_once}
    query = streams.start(
        rows.selectExpr("cast(value as string) as event"), "missing", "log", {"availableNow": True}, **options
    )
    with pytest.raises(StreamingQueryException, match=message.format(scope=streams.scope)):
        query.awaitTermination(60)
    assert not streams.gateway.scope_exists(streams.scope) or not streams.gateway.list_streams(streams.scope)
