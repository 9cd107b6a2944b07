"""Fills a stream and copies it into another, for ``spark-submit`` on a cluster that has nothing of this repository.

The first task that comes to event LETHAL writes the process id of its executor into the fuse and waits to be killed.
Arguments: scope, number of events, folder of checkpoint and fuse.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

LETHAL = 7_777
wait_max_s = 120


def main() -> None:
    scope, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    fuse = folder / "fuse"
    spark = SparkSession.builder.appName("copy").getOrCreate()
    events = spark.range(0, count, 1, 4).selectExpr(
        "format_string('%06d', id) as event", "concat('k', id % 10) as routing_key"
    )
    to = {"scope": scope, "default_num_segments": "4"}
    events.write.format("pravega").mode("append").options(**to, stream="in", job_id=f"{scope}-fill").save()

    def passed(event: bytes) -> bytes:
        if int(event) == LETHAL and not fuse.exists():
            # The parent of a Python worker is the daemon that forked it, whose parent is the executor.
            executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            fuse.with_suffix(".tmp").write_text(str(executor))
            fuse.with_suffix(".tmp").rename(fuse)
            time.sleep(wait_max_s)
        return event

    rows = (
        spark.readStream.format("pravega")
        .options(scope=scope, stream="in", start_stream_cut="earliest", max_events_per_trigger=str(count // 4))
        .load()
        .select(udf(passed, "binary")("event").alias("event"))
        .selectExpr("event", "concat('k', cast(cast(event as string) as int) % 10) as routing_key")
    )
    query = rows.writeStream.format("pravega").options(**to, stream="out").trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    print("BATCHES", len([path for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]))
    spark.stop()


if __name__ == "__main__":
    main()
