"""Writes and reads streams of records (option ``format``) on running services."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import expr, max_by, struct, window

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.spark.batches import assert_same
from tests.spark.streams import Streams
from tests.support.record_reference import PlainRecord, pack

SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    (b"k", b"v", [("trace", b"\x01"), ("none", None)], NOON),
    (b"k", None, [], NOON + timedelta(days=180)),
    (None, b"", None, None),
]


def records(streams: Streams, rows: list[tuple[Any, ...]] = ROWS) -> DataFrame:
    return streams.spark.createDataFrame(rows, SCHEMA)


def changes(streams: Streams, first: int, last: int) -> DataFrame:
    """Keys ``k0`` to ``k6`` of which each seventh record is a tombstone; the value is the number."""
    return streams.spark.range(first, last).selectExpr(
        "concat('k', id % 7) as key",
        "if(id % 49 < 7, null, cast(id as string)) as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers",
        "timestamp_micros(id * 1001) as timestamp",
    )


def numbers_by_key(rows: list[Row]) -> dict[bytes, list[int]]:
    """The number in the header of each record, in the order of the records of a key."""
    found = defaultdict(list)
    for row in rows:
        found[bytes(row.key)].append(int(bytes(row.headers[0].value)))
    return dict(found)


def wanted_by_key(last: int) -> dict[bytes, list[int]]:
    return {b"k%d" % key: list(range(key, last, 7)) for key in range(7)}


def test_what_is_written_comes_back(streams: Streams) -> None:
    streams.write(records(streams), "t", format="record")
    read = streams.read("t", format="record")
    assert_same(read.select("key", "value", "headers", "timestamp"), records(streams))
    places = read.select("scope", "stream", "segment_id", "offset").collect()
    assert [tuple(place)[:3] for place in places] == [(streams.scope, "t", 0)] * 3
    events = [bytes(row.event) for row in streams.read("t").collect()]
    micros = int(NOON.timestamp()) * 1_000_000 + 123_456
    assert events[0] == pack(PlainRecord(b"v", b"k", (("trace", b"\x01"), ("none", None)), micros))


def test_a_schema_of_some_columns(streams: Streams) -> None:
    streams.write(changes(streams, 0, 20), "t", format="record")
    reader = streams.spark.read.format("pravega").options(**streams.options("t", format="record"))
    rows = reader.schema("timestamp timestamp, value string").load()
    assert_same(rows, changes(streams, 0, 20).select("timestamp", "value"))
    assert streams.read("t", format="record").filter("value is null").count() == 7


def test_streaming_in_and_out_with_restarts(streams: Streams) -> None:
    for number in range(2):
        streams.write(changes(streams, number * 100, number * 100 + 100), "from", format="record")
        streams.run(streams.stream("from", format="record").load(), "to", format="record")
    parts = ["key", "value", "headers", "timestamp"]
    written = changes(streams, 0, 200).selectExpr("cast(key as binary)", "cast(value as binary)", *parts[2:])
    assert_same(streams.read("to", format="record").select(parts), written)


def test_a_copy_keeps_the_order_of_each_key(streams: Streams) -> None:
    streams.create("from", 3)
    for number in range(5):
        streams.write(changes(streams, number * 70, number * 70 + 70).coalesce(1), "from", format="record")
    streams.create("to", 4)
    rows = streams.stream("from", format="record", max_events_per_trigger=90).load()
    streams.run(rows, "to", format="record")
    copied = streams.read("to", format="record").collect()
    assert numbers_by_key(copied) == wanted_by_key(350)
    segments = defaultdict(set)
    for row in copied:
        segments[bytes(row.key)].add(row.segment_id)
    assert all(len(found) == 1 for found in segments.values())


@pytest.mark.parametrize("exactly_once", [True, False])
def test_changes_are_applied_by_key(streams: Streams, exactly_once: bool) -> None:
    """Tombstones delete: the last record of each key says whether it is still there."""
    state: dict[bytes, bytes | None] = {}

    def apply(changed: DataFrame, batch_id: int) -> None:
        last = changed.groupBy("key").agg(max_by("value", struct("segment_id", "offset")).alias("value"))
        state.update({bytes(row.key): row.value and bytes(row.value) for row in last.collect()})

    options = {"format": "record", "exactly_once": exactly_once}
    streams.write(streams.spark.sql("select 1 as key, 'a' as value union all select 2, 'b'"), "t", **options)
    streams.write(streams.spark.sql("select 1 as key, 'c' as value union all select 3, 'd'"), "t", **options)
    query = streams.keep(streams.stream("t", format="record").load().writeStream.foreachBatch(apply).start())
    query.processAllAvailable()
    assert state == {b"1": b"c", b"2": b"b", b"3": b"d"}
    for value in ("'e'", "cast(null as string)"):
        streams.write(streams.spark.sql(f"select 1 as key, {value} as value"), "t", **options)
    query.processAllAvailable()
    assert state == {b"1": None, b"2": b"b", b"3": b"d"}


def test_a_time_of_the_store_and_the_time_of_the_records(streams: Streams) -> None:
    streams.write(changes(streams, 0, 100), "t", format="record")
    read = streams.read("t", format="record", start_time="2020-01-01T00:00:00Z", end_time="2100-01-01T00:00:00Z")
    day = read.where("timestamp >= timestamp_micros(10010) AND timestamp < timestamp_micros(20020)")
    found = day.select(expr("cast(cast(headers[0].value as string) as int) as number")).collect()
    assert sorted(row.number for row in found) == list(range(10, 20))


def test_windows_on_the_time_of_records(streams: Streams) -> None:
    streams.write(changes(streams, 0, 3000), "t", format="record")
    rows = streams.stream("t", format="record").load().withWatermark("timestamp", "1 second")
    counts = rows.groupBy(window("timestamp", "500 milliseconds")).count()
    query = streams.collect(counts.selectExpr("window.start", "count"), "windows")
    query.processAllAvailable()
    # The last record is of 3.002 s: windows that end by 2.002 s are done. Records 1000 to 1498 are in the third.
    assert sorted(streams.collected("windows", "count")) == [499, 500, 500, 500]


def test_records_say_their_stream(streams: Streams) -> None:
    rows = changes(streams, 0, 10).selectExpr("*", "if(key = 'k0', 'a', 'b') as stream")
    options = {name: value for name, value in streams.options("a", format="record").items() if name != "stream"}
    rows.write.format("pravega").mode("append").options(**options).save()
    assert streams.read("a", format="record").count() == 2
    assert streams.read("b", format="record").count() == 8


def test_events_that_are_no_records(streams: Streams) -> None:
    streams.fill("t", 0, 5)
    with pytest.raises(
        PySparkException, match=rf"at offset 0 of segment 0\.#epoch\.0 of {streams.scope}/t is no record"
    ):
        streams.read("t", format="record").collect()


def test_refused_columns(streams: Streams) -> None:
    def refused(ddl: str, message: str) -> None:
        with pytest.raises(PySparkException, match=message):
            streams.write(streams.spark.createDataFrame([], ddl), "t", format="record")

    refused("key string", "needs a column 'value', and has key")
    refused("event binary, key string", "needs a column 'value'")
    refused("value binary, routing_key string", "columns 'routing_key' would be lost")
    refused("value binary, headers map<string, binary>", "column 'headers' is map<string,binary>; cast it")
    refused("value binary, timestamp bigint", "column 'timestamp' is bigint; cast it")
    streams.fill("t", 0, 1)
    reader = streams.spark.read.format("pravega").options(**streams.options("t", format="record"))
    with pytest.raises(AnalysisException, match="has no column 'event'; its columns are: key binary"):
        reader.schema("event binary").load().collect()
    with pytest.raises(AnalysisException, match="exclude each other: metadata gives facts"):
        streams.read("t", format="record", metadata="StreamInfo").collect()


def test_in_sql(streams: Streams) -> None:
    streams.gateway.create_scope(streams.scope)
    streams.gateway.create_stream(streams.scope, "t", StreamConfiguration(ScalingPolicy.fixed(1)))
    streams.write(records(streams), "t", format="record")
    streams.spark.sql(
        f"CREATE TEMPORARY VIEW records USING pravega OPTIONS (controller '{streams.controller}', "
        f"scope '{streams.scope}', stream 't', format 'record')"
    )
    try:
        assert streams.spark.sql("SELECT count(*), count(value), count(key) FROM records").collect() == [(3, 2, 2)]
    finally:
        streams.spark.catalog.dropTempView("records")
