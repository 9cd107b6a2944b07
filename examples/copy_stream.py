"""Copies a stream into one with other segments: keys, headers and times are kept, and the order of each key."""

from pyspark.sql import SparkSession
from sample import fill

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/orders")

records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
query = (
    records.load("shop/orders")
    .writeStream.format("pravega")
    .option("format", "record")
    .option("default_num_segments", 4)
    .option("checkpointLocation", "checkpoints/copy_stream")
    .trigger(availableNow=True)
    .start("shop/orders-copy")
)
query.awaitTermination()

copy = spark.read.format("pravega").option("format", "record").load("shop/orders-copy")
print("copied:", copy.count(), "of", copy.select("key").distinct().count(), "customers")
