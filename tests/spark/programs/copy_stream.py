"""Copies one stream into another, in a driver to be killed: ``python -m tests.spark.programs.copy_stream {…}``.

The argument: ``controller``, ``scope``, ``source``, ``target``, ``checkpoint``, ``sink`` (options of the sink),
``source_options`` (more of the source).
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("copy")
        .config("spark.driver.memory", "700m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", given["checkpoint"] + "-warehouse")
        .getOrCreate()
    )
    store = {"controller": given["controller"], "scope": given["scope"]}
    rows = (
        spark.readStream.format("pravega")
        .options(**store, stream=given["source"], start_stream_cut="earliest", approx_bytes_per_trigger=given["bytes"])
        .options(**given.get("source_options", {}))
        .load()
        .selectExpr("event", "concat('k', cast(cast(event as string) as int) % 10) as routing_key")
    )
    query = (
        rows.writeStream.format("pravega")
        .options(**store, stream=given["target"], **given["sink"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
