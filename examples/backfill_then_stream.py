"""Computes over the whole history once, then goes on exactly where that ended: no record twice, none left out."""

from pyspark.sql import DataFrame, SparkSession
from sample import fill

import pravega_spark

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/sales")

history = spark.read.format("pravega").option("format", "record").load("shop/sales")
totals = {bytes(row["key"]).decode(): row["count"] for row in history.groupBy("key").count().collect()}
print("history:", sum(totals.values()))

# The batch chose its end when it began, and the stream starts there. (Over Spark Connect: see metadata=StreamInfo.)
cut = pravega_spark.cut_of(history)

more = spark.range(30).selectExpr("'zoe' as key", "cast(id as string) as value", "current_timestamp() as timestamp")
more.write.format("pravega").mode("append").option("format", "record").save("shop/sales")


def add(batch: DataFrame, batch_id: int) -> None:
    for row in batch.groupBy("key").count().collect():
        name = bytes(row["key"]).decode()
        totals[name] = totals.get(name, 0) + row["count"]


live = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", cut).load("shop/sales")
live.writeStream.foreachBatch(add).trigger(availableNow=True).start().awaitTermination()
print("after the stream:", sum(totals.values()), "of which zoe:", totals["zoe"])
