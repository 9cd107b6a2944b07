"""Takes files into a stream as they arrive, each line once, also when the program is killed and started again."""

from pyspark.sql import SparkSession
from sample import FILES, SCHEMA, records

spark = SparkSession.builder.getOrCreate()

arriving = spark.readStream.schema(SCHEMA).json(FILES)
query = (
    records(arriving)
    .writeStream.format("pravega")
    .option("format", "record")
    .option("checkpointLocation", "checkpoints/files_to_stream")
    .trigger(availableNow=True)  # all files that are there, then it ends; without this line it goes on
    .start("shop/arrived")
)
query.awaitTermination()

print("in the stream:", spark.read.format("pravega").option("format", "record").load("shop/arrived").count())
