"""Reads and writes streams through a Spark Connect server; the connector is installed where the server runs.

The server: `PYSPARK_PYTHON=$(which python) $SPARK_HOME/sbin/start-connect-server.sh`, then
`SPARK_REMOTE=sc://localhost:15002 python over_spark_connect.py`.
"""

import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(os.environ.get("SPARK_REMOTE", "sc://localhost:15002")).getOrCreate()

rows = spark.range(100).selectExpr("concat('event ', id) as event", "concat('key ', id % 5) as routing_key")
rows.write.format("pravega").mode("append").option("job_id", "connect-example").save("shop/connected")

stream = spark.readStream.format("pravega").option("start_stream_cut", "earliest").load("shop/connected")
query = stream.select("event").writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
query.awaitTermination()
print("read:", spark.table("seen").count())
