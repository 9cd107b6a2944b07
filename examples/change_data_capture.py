"""Keeps the present state of each key from a stream of changes, in which a null value deletes."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()

changes = spark.createDataFrame(
    [("ada", "Lisbon"), ("ben", "Oslo"), ("ada", "Porto"), ("cleo", "Turin"), ("ben", None)], "key string, value string"
)
to_stream = changes.coalesce(1).write.format("pravega").mode("append").option("format", "record")
to_stream.option("job_id", "sample-customers").save("shop/customers")

STATE = Path("state/customers")


def apply(batch: DataFrame, batch_id: int) -> None:
    """Makes state number `batch_id` from its predecessor, so a batch that comes again does no harm."""
    position = F.struct("segment_id", "offset")  # segments after a scaling have greater ids
    last = batch.groupBy("key").agg(F.max_by("value", position).alias("value"))
    before = STATE / str(batch_id - 1)
    state = spark.read.parquet(str(before)) if before.exists() else batch.limit(0).select("key", "value")
    kept = state.join(last, "key", "left_anti")
    merged = kept.unionByName(last.where("value is not null").select("key", "value"))
    merged.write.mode("overwrite").parquet(str(STATE / str(batch_id)))


records = spark.readStream.format("pravega").option("format", "record").option("start_stream_cut", "earliest")
rows = records.schema("key string, value string, segment_id long, offset long").load("shop/customers")
query = rows.writeStream.foreachBatch(apply).option("checkpointLocation", "checkpoints/change_data_capture")
query.trigger(availableNow=True).start().awaitTermination()

newest = max(STATE.iterdir(), key=lambda folder: int(folder.name))
for row in spark.read.parquet(str(newest)).orderBy("key").collect():
    print(row.key, "lives in", row.value)
