"""Reads one day again: the store finds the place by its clock, and the records' timestamps make the edges exact."""

from pyspark.sql import SparkSession
from sample import fill

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/orders")

day = (
    spark.read.format("pravega")
    .option("format", "record")
    # No record of the day was written before it began. Where records come at most an hour late, an end_time of
    # 2026-07-02T01:00:00Z would keep the read short as well; the sample was written long after its day.
    .option("start_time", "2026-07-01T00:00:00Z")
    .load("shop/orders")
    .where("timestamp >= '2026-07-01T00:00:00Z' and timestamp < '2026-07-02T00:00:00Z'")
)
print("orders of the day:", day.count())
