"""Loads the sample orders of two days into a stream of records; most examples begin with it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

FILES = str(Path(__file__).parent / "data" / "orders")
SCHEMA = "order long, customer string, item string, quantity int, price double, time timestamp"


def records(orders: DataFrame) -> DataFrame:
    """Orders as records: the customer is the key, the whole order as JSON the value, its time the timestamp."""
    return orders.selectExpr("customer as key", "to_json(struct(*)) as value", "time as timestamp")


def order_of(value: str) -> Column:
    """The order in a record's value, as a struct."""
    return F.from_json(F.col(value).cast("string"), SCHEMA)


def fill(spark: SparkSession, stream: str) -> None:
    """Writes the 240 orders; the job id makes a second call write nothing."""
    to_stream = records(spark.read.schema(SCHEMA).json(FILES)).write.format("pravega").mode("append")
    to_stream.option("format", "record").option("job_id", f"sample-{stream.replace('/', '-')}").save(stream)
