"""Writes an archive of the classes that Spark loads: a JVM that maps it is up, with a first query, in half the time.

usage: write_class_archive.py FILE, by the Python whose Spark it is for. Whoever uses the archive gives the JVM the same
options and ``-XX:SharedArchiveFile=FILE``; one that does not fit, as that of another Java, is passed over.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from pravega_common.invariants import check


def use_spark(folder: Path) -> None:
    """Do some of everything: files, a shuffle, Python, and a streaming query."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    rows = session.range(1_000).selectExpr("id", "cast(id % 7 as string) as name", "now() as time")
    for form in ("parquet", "json"):
        rows.write.format(form).save(str(folder / form))
        names = session.read.format(form).load(str(folder / form)).groupBy("name").count()
        check(names.count() == 7, "another number of names than was written", form=form)
    counted = rows.mapInArrow(lambda batches: batches, rows.schema)
    check(counted.orderBy("id").count() == 1_000, "another number of rows than was written")
    query = (
        session.readStream.schema(rows.schema)
        .parquet(str(folder / "parquet"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "copy"))
    )
    query.awaitTermination()
    session.stop()


def main(archive: str) -> None:
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = f'{options} "-XX:ArchiveClassesAtExit={Path(archive).resolve()}" -Xlog:disable'
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        use_spark(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
