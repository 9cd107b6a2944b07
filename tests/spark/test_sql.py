"""Runs SQL over the source without the optional jar: tables of Spark's own catalog, and what works instead."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.streams import Streams

NOT_REACHED = (
    r"options of CREATE TABLE do not reach a Python source, but those of CREATE TEMPORARY VIEW and of "
    r"SELECT … WITH \(…\) do"
)


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    """The name of a table that ends with the test, as does a view of this name and a ``v``."""
    made = f"t{uuid.uuid4().hex[:8]}"
    yield made
    spark.sql(f"DROP VIEW IF EXISTS {made}v")
    spark.sql(f"DROP TABLE IF EXISTS {made}")


def in_sql(options: dict[str, str]) -> str:
    return ", ".join(f"{option} = '{value}'" for option, value in options.items())


def numbers(spark: SparkSession, query: str) -> list[int]:
    return sorted(int(bytes(row.event)) for row in spark.sql(query).collect())


def streamed(streams: Streams, table: str, **options: str) -> int:
    """Rows of a streaming read of a table."""
    rows = streams.spark.readStream.options(**options).table(table)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(streams.folder / "checkpoint"))
    query = streams.keep(writer.trigger(availableNow=True).start())
    assert query.awaitTermination(60)
    return sum(progress["numInputRows"] for progress in query.recentProgress)


@pytest.mark.parametrize("properties", ["OPTIONS ({given})", "TBLPROPERTIES ({given})", ""])
def test_a_table_that_takes_its_columns_from_the_source_is_refused(
    streams: Streams, name: str, properties: str
) -> None:
    """At once, and with what works, instead of a table that knows no stream."""
    given = properties.format(given=in_sql(streams.options("t")))
    with pytest.raises(PySparkException, match=f"is a property of a table in Spark's catalog: {NOT_REACHED}"):
        streams.spark.sql(f"CREATE TABLE {name} USING pravega {given}")
    assert not streams.spark.catalog.tableExists(name)


def test_a_table_with_columns_has_lost_its_options(streams: Streams, name: str) -> None:
    """Spark asks no source when the statement names columns; each use of the table fails and says why."""
    given = in_sql(streams.options("t"))
    streams.spark.sql(f"CREATE TABLE {name} (event BINARY) USING pravega OPTIONS ({given})")
    uses: list[Any] = [
        lambda: streams.spark.sql(f"SELECT * FROM {name}").collect(),
        lambda: streams.spark.sql(f"INSERT INTO {name} VALUES (X'30')"),
        lambda: streamed(streams, name),
    ]
    for use in uses:
        with pytest.raises(PySparkException, match=f"missing required option 'scope': .*{NOT_REACHED}"):
            use()
    with pytest.raises(PySparkException, match=f"missing required option 'scope': .*{NOT_REACHED}"):
        streams.spark.sql(f"CREATE TABLE {name}v USING pravega OPTIONS ({given}) AS SELECT 'x' AS event")
    streams.spark.sql(f"DROP TABLE IF EXISTS {name}v")


def test_options_of_the_query_arrive(streams: Streams, name: str) -> None:
    streams.fill("t", 0, 10)
    options = streams.options("t")
    streams.spark.sql(f"CREATE TABLE {name} (event BINARY) USING pravega")
    assert numbers(streams.spark, f"SELECT * FROM {name} WITH ({in_sql(options)})") == list(range(10))
    streams.spark.sql(f"INSERT INTO {name} WITH ({in_sql(options)}) VALUES (X'3130')")
    assert streams.numbers("t") == list(range(11))
    assert streams.spark.read.options(**options).table(name).count() == 11
    assert streamed(streams, name, **options, start_stream_cut="earliest") == 11


def test_options_of_a_temporary_view_arrive(streams: Streams, name: str) -> None:
    """It keeps the stream cuts of its first action, as a batch frame does."""
    streams.fill("t", 0, 10)
    create = f"CREATE OR REPLACE TEMPORARY VIEW {name}v USING pravega OPTIONS ({in_sql(streams.options('t'))})"
    streams.spark.sql(create)
    rows = streams.read("t")
    assert (numbers(streams.spark, f"SELECT * FROM {name}v"), rows.count()) == (list(range(10)), 10)
    streams.fill("t", 10, 20)
    assert (numbers(streams.spark, f"SELECT * FROM {name}v"), rows.count()) == (list(range(10)), 10)
    streams.spark.sql(create)
    assert numbers(streams.spark, f"SELECT * FROM {name}v") == list(range(20))
