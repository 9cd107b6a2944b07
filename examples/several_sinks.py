"""Writes each batch into two streams from foreachBatch, exactly once: each write has a name, and the batch's number."""

from pyspark.sql import DataFrame, SparkSession
from sample import fill, order_of

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/orders")


def split(batch: DataFrame, batch_id: int) -> None:
    parts = {"large": "order.quantity >= 3", "small": "order.quantity < 3"}
    orders = batch.withColumn("order", order_of("value")).persist()
    for name, condition in parts.items():
        rows = orders.where(condition).select("key", "value", "timestamp")
        to_stream = rows.write.format("pravega").mode("append").option("format", "record")
        # A batch that comes again after a crash is known by these two, and not written a second time.
        to_stream.option("txn_app_id", f"split-{name}").option("txn_version", batch_id).save(f"shop/{name}-orders")
    orders.unpersist()


records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
query = records.load("shop/orders").writeStream.foreachBatch(split)
query.option("checkpointLocation", "checkpoints/several_sinks").trigger(availableNow=True).start().awaitTermination()

for name in ("large", "small"):
    print(name, spark.read.format("pravega").option("format", "record").load(f"shop/{name}-orders").count())
