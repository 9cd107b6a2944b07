"""Exports a stream into Parquet by day, each record once; run again, it takes what came since."""

from pyspark.sql import SparkSession
from sample import fill, order_of

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
fill(spark, "shop/orders")

records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
orders = records.load("shop/orders").select(order_of("value").alias("order"), "timestamp")
query = (
    orders.selectExpr("order.*", "to_date(timestamp) as day")
    .writeStream.format("parquet")
    .partitionBy("day")
    .option("checkpointLocation", "checkpoints/export_to_files")
    .trigger(availableNow=True)
    .start("exported/orders")
)
query.awaitTermination()

for row in spark.read.parquet("exported/orders").groupBy("day").count().orderBy("day").collect():
    print(row["day"], row["count"])
