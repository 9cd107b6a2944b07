"""Counts orders by hour of their own time; a window is written once, when the watermark has passed its end."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sample import fill, order_of

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
spark.conf.set("spark.sql.shuffle.partitions", 2)
fill(spark, "shop/orders")

records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
hours = (
    records.load("shop/orders")
    .select("timestamp", order_of("value").alias("order"))
    .withWatermark("timestamp", "2 hours")
    .groupBy(F.window("timestamp", "1 hour"))
    .agg(F.count("*").alias("orders"), F.round(F.sum(F.expr("order.quantity * order.price")), 2).alias("revenue"))
    .select(F.col("window.start").alias("hour"), "orders", "revenue")
)
query = (
    hours.selectExpr("to_json(struct(*)) as event", "cast(hour as string) as routing_key")
    .writeStream.format("pravega")
    .outputMode("append")
    .option("checkpointLocation", "checkpoints/windows_by_time")
    .trigger(availableNow=True)
    .start("shop/hours")
)
query.awaitTermination()

written = spark.read.format("pravega").schema("event string").load("shop/hours")
for row in written.orderBy(F.get_json_object("event", "$.hour")).collect():
    print(row.event)
