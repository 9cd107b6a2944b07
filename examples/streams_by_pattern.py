"""Reads all streams whose names match a pattern in one query; one that is made while it runs is read from its head."""

from pyspark.sql import SparkSession
from sample import fill

spark = SparkSession.builder.getOrCreate()
fill(spark, "shop/branch-lisbon")

branches = (
    spark.readStream.format("pravega")
    .option("format", "record")
    .option("scope", "shop")
    .option("stream_pattern", "branch-.*")  # must match the whole name
    .option("stream_discovery_interval", "1s")  # how often the scope is listed; 30 s if it is left out
    .option("start_stream_cut", "earliest")
    .load()
)
query = branches.select("stream", "key").writeStream.format("memory").queryName("branch_orders").start()
query.processAllAvailable()

fill(spark, "shop/branch-oslo")  # The query does not know it yet.
while spark.table("branch_orders").where("stream = 'branch-oslo'").isEmpty():
    query.awaitTermination(1)
query.processAllAvailable()

for row in spark.table("branch_orders").groupBy("stream").count().orderBy("stream").collect():
    print(row["stream"], row["count"])
query.stop()
