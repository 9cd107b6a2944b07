"""Computes over the whole history once, then goes on exactly where that ended: no record twice, none left out."""

from pyspark.sql import DataFrame, SparkSession
from sample import fill

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/sales")

# The cut is taken first: the batch ends there, and the stream starts there.
info = spark.read.format("pravega").option("metadata", "StreamInfo").load("shop/sales")
cut = info.first()["tail_stream_cut"]

source = {"format": "record", "end_stream_cut": cut}
history = spark.read.format("pravega").options(**source).load("shop/sales")
totals = {bytes(row["key"]).decode(): row["count"] for row in history.groupBy("key").count().collect()}
print("history:", sum(totals.values()))

more = spark.range(30).selectExpr("'zoe' as key", "cast(id as string) as value", "current_timestamp() as timestamp")
more.write.format("pravega").mode("append").option("format", "record").save("shop/sales")


def add(batch: DataFrame, batch_id: int) -> None:
    for row in batch.groupBy("key").count().collect():
        name = bytes(row["key"]).decode()
        totals[name] = totals.get(name, 0) + row["count"]


live = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", cut).load("shop/sales")
live.writeStream.foreachBatch(add).trigger(availableNow=True).start().awaitTermination()
print("after the stream:", sum(totals.values()), "of which zoe:", totals["zoe"])
