"""A nested event is written as JSON, as ``to_json`` would make it."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame

from tests.spark.streams import Streams

NESTED = """
  struct(
    id AS number, cast(id AS string) AS text, if(id % 2 = 0, NULL, id) AS odd, id % 2 = 0 AS even,
    cast(id AS double) / 8 AS eighth, cast(id AS float) / 10 AS tenth, cast(id / 4 AS decimal(20, 4)) AS exact,
    cast(concat('b', id) AS binary) AS bytes, date_add(DATE'2026-01-01', cast(id AS int)) AS day,
    timestamp_micros(1767225600000000 + id * 1001001) AS at, cast('nan' AS double) AS none,
    array(id, NULL) AS list, map('k', id, concat('m', id), NULL) AS by, struct(id AS a, cast(NULL AS int) AS b) AS inner
  )
"""


@pytest.fixture
def rows(streams: Streams) -> DataFrame:
    streams.spark.conf.set("spark.sql.session.timeZone", "UTC")
    return streams.spark.range(20).selectExpr(f"{NESTED} AS event", "cast(id % 3 AS string) AS routing_key")


def test_it_is_what_to_json_makes(streams: Streams, rows: DataFrame) -> None:
    streams.create("t", 2)
    streams.write(rows, "t")
    written = [json.loads(row.event) for row in streams.read("t").select("event").collect()]
    wanted = [json.loads(row[0]) for row in rows.selectExpr("to_json(event)").collect()]
    assert sorted(written, key=lambda row: row["number"]) == wanted


def test_values_of_records_too(streams: Streams, rows: DataFrame) -> None:
    streams.create("t", 1)
    values = rows.selectExpr("event AS value", "routing_key AS key")
    streams.write(values, "t", format="record")
    found = streams.read("t", format="record").selectExpr("cast(value AS string)").collect()
    wanted = [json.loads(row[0]) for row in rows.selectExpr("to_json(event)").collect()]
    assert sorted((json.loads(row[0]) for row in found), key=lambda row: row["number"]) == wanted


def test_a_streaming_query_writes_them(streams: Streams) -> None:
    streams.create("t", 2)
    streams.fill("from", 0, 50)
    nested = streams.stream("from").load().selectExpr("struct(cast(event AS string) AS text, offset) AS event")
    streams.run(nested, "t")
    written = [json.loads(row.event) for row in streams.read("t").select("event").collect()]
    assert sorted(row["text"] for row in written) == [f"{number:06}" for number in range(50)]
    assert all(isinstance(row["offset"], int) for row in written)
