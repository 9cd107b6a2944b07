"""Batch and streaming, in and out, over the twin: the shortest way through the whole connector."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_spark.gateway import twin_scheme
from pravega_spark.in_memory_gateway import InMemoryGateway


@pytest.fixture
def controller(tmp_path: Path) -> str:
    return f"{twin_scheme}{tmp_path}/store"


def test_batch_out_and_in(spark: SparkSession, controller: str) -> None:
    options = {"controller": controller, "scope": "s", "stream": "t", "default_num_segments": "3"}
    rows = spark.range(1000).selectExpr("concat('event ', id) as event", "concat('key', id % 10) as routing_key")
    rows.write.format("pravega").mode("append").options(**options).save()
    read = spark.read.format("pravega").options(**options).load()
    assert read.columns == ["event", "scope", "stream", "segment_id", "offset"]
    got = sorted(bytes(row.event).decode() for row in read.collect())
    assert got == sorted(f"event {index}" for index in range(1000))
    assert read.select("segment_id").distinct().count() == 3


def test_stream_in_and_out(spark: SparkSession, controller: str, tmp_path: Path) -> None:
    source = {"controller": controller, "scope": "s", "stream": "from", "default_num_segments": "2"}
    sink = {"controller": controller, "scope": "s", "stream": "to", "default_num_segments": "2"}
    for round_number in range(2):
        rows = spark.range(500).selectExpr(f"concat('{round_number} ', id) as value", "cast(id % 7 as string) as key")
        rows.write.format("pravega").mode("append").options(**source).save()
        query = (
            spark.readStream.format("pravega")
            .options(**source)
            .option("start_stream_cut", "earliest")
            .load()
            .selectExpr("event")
            .writeStream.format("pravega")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.exception() is None
        assert sum(item["numInputRows"] for item in query.recentProgress) == 500
    copied = spark.read.format("pravega").options(**sink).schema("event string").load()
    expected = sorted(f"{round_number} {index}" for round_number in range(2) for index in range(500))
    assert sorted(row.event for row in copied.collect()) == expected
    states = InMemoryGateway(controller.removeprefix(twin_scheme)).transaction_states()
    assert set(states.values()) == {"committed"}
