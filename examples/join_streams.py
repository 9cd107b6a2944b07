"""Joins two streams by key: each order with the payment that came within two hours of it."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sample import fill

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
spark.conf.set("spark.sql.shuffle.partitions", 2)
fill(spark, "shop/orders")

# Payments of the first day's orders, an hour after each; the key is the customer's, so a join can use it.
sold = spark.read.format("pravega").option("format", "record").load("shop/orders")
payments = sold.where("timestamp < '2026-07-02'").selectExpr(
    "key", "get_json_object(cast(value as string), '$.order') as value", "timestamp + interval 1 hour as timestamp"
)
to_stream = payments.write.format("pravega").mode("append").option("format", "record")
to_stream.option("job_id", "sample-payments").save("shop/payments")

records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
number = "cast(get_json_object(cast(value as string), '$.order') as long)"
orders = records.load("shop/orders").selectExpr("key", f"{number} as number", "timestamp as ordered")
paid = records.load("shop/payments").selectExpr(
    "key as payer", "cast(cast(value as string) as long) as paid_for", "timestamp as paid"
)
# The watermarks and the bounds of time let Spark forget orders that can have no payment any more.
joined = orders.withWatermark("ordered", "1 hour").join(
    paid.withWatermark("paid", "1 hour"),
    F.expr("key = payer and number = paid_for and paid between ordered and ordered + interval 2 hours"),
)
query = (
    joined.selectExpr("key", "to_json(struct(number, ordered, paid)) as value", "paid as timestamp")
    .writeStream.format("pravega")
    .option("format", "record")
    .option("checkpointLocation", "checkpoints/join_streams")
    .trigger(availableNow=True)
    .start("shop/paid-orders")
)
query.awaitTermination()

print("paid orders:", spark.read.format("pravega").option("format", "record").load("shop/paid-orders").count())
