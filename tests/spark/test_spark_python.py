"""Runs a query with the launcher as PYSPARK_PYTHON, and looks at where its processes have PySpark from."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest

from pravega_spark.spark_python import LAUNCHER
from tests.support.spark_sessions import found_by_session, make_programs

SESSION = """
import json, pyspark, sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

class Planner(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"pyspark": pyspark.__file__, "python": sys.executable}
    def read(self, start):
        return iter([(pyspark.__file__,)]), {**start, "n": start.get("n", 0) + 1}
    def readBetweenOffsets(self, start, end):
        return iter([])

class Where(DataSource):
    @classmethod
    def name(cls):
        return "where"
    def schema(self):
        return "pyspark string"
    def simpleStreamReader(self, schema):
        return Planner()

def in_task(_):
    import pyspark
    return [pyspark.__file__]

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Where)
query = spark.readStream.format("where").load().writeStream.format("noop").start()
while not query.recentProgress:
    query.exception()
    query.awaitTermination(1)
offset = query.recentProgress[0]["sources"][0]["endOffset"]
query.stop()
planner = json.loads(offset) if isinstance(offset, str) else offset
worker = spark.sparkContext.parallelize([1], 1).mapPartitions(in_task).collect()[0]
print("FOUND", json.dumps({**planner, "worker": worker}))
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return make_programs(tmp_path)


def found_by(python: Path, folder: Path) -> dict[str, Any]:
    return found_by_session(SESSION, folder, {"PYSPARK_PYTHON": str(python)})


@pytest.mark.slow
def test_planner_and_worker_have_the_unpacked_package(programs: Path, tmp_path: Path) -> None:
    found = found_by(programs / LAUNCHER, tmp_path)
    assert Path(found["python"]) == programs / "python"
    unpacked = Path(sysconfig.get_path("purelib")) / "pyspark" / "__init__.py"
    assert unpacked.samefile(found["pyspark"]) and unpacked.samefile(found["worker"])


@pytest.mark.slow
def test_without_the_launcher_spark_reads_its_zip(programs: Path, tmp_path: Path) -> None:
    """What the launcher is for: once this fails, Spark does not need it any more."""
    found = found_by(programs / "python", tmp_path)
    assert "pyspark.zip" in found["pyspark"] and "pyspark.zip" in found["worker"]
