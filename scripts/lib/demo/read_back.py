"""Reads the whole stream into Parquet as a Spark batch job, for the comparison."""

from __future__ import annotations

import sys

from demo.spark_job import SCOPE, STREAM, session


def main(controller: str, target: str) -> None:
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    events = (
        spark.read.format("pravega")
        .option("controller", controller)
        .option("scope", SCOPE)
        .option("stream", STREAM)
        .load()
    )
    events.selectExpr("cast(event as string) as event", "segment_id", "offset").write.parquet(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
