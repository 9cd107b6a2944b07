"""Runs streaming queries of one session whose planners come from a server, and the same without it."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from pravega_spark.planner_server.client import WAIT
from pravega_spark.spark_python import LAUNCHER
from pravega_spark.standalone.process import StandaloneProcess
from tests.support.eventually import eventually_blocking
from tests.support.processes import state_of
from tests.support.spark_planners import wait_ms
from tests.support.spark_sessions import found_by_session, make_programs

server_start_max_s: Final = 60
SESSION: Final = """
import glob, json, os, sys, time
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

controller, scope, folder, wait_s = sys.argv[1:]

class Planner(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"process": os.getpid(), "parent": os.getppid()}
    def read(self, start):
        return iter([(1,)]), {**start, "n": start.get("n", 0) + 1}
    def readBetweenOffsets(self, start, end):
        return iter([])

class Where(DataSource):
    @classmethod
    def name(cls):
        return "where"
    def schema(self):
        return "one int"
    def simpleStreamReader(self, schema):
        return Planner()

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
where = {"controller": controller, "scope": scope}
events = spark.range(1000).selectExpr("cast(id as string) as event")
events.write.format("pravega").options(**where, stream="in", default_num_segments=2).mode("append").save()

def is_right(name):
    read = spark.readStream.format("pravega").options(**where, stream="in", start_stream_cut="earliest").load()
    write = read.select("event").writeStream.format("pravega").options(**where, stream=name)
    query = write.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.format("pravega").options(**where, stream=name).load().collect()
    return sorted(int(row.event) for row in rows) == list(range(1000))

def planner():
    query = spark.readStream.format("where").load().writeStream.format("noop").start()
    while not query.recentProgress:
        query.exception()
        query.awaitTermination(1)
    offset = query.recentProgress[0]["sources"][0]["endOffset"]
    query.stop()
    return json.loads(offset) if isinstance(offset, str) else offset

spark.dataSource.register(Where)
def servers():
    return len(glob.glob(f"{folder}/pravega-spark-planners-*/*.socket"))

right = [is_right("first")]
until = time.monotonic() + float(wait_s)
while not servers() and time.monotonic() < until:
    time.sleep(0.05)
found = servers()
right += [is_right("second"), is_right("third")]
jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
until = time.monotonic() + float(wait_s)
tries = [planner()]
while tries[-1]["parent"] == jvm and time.monotonic() < until:
    time.sleep(1)
    tries.append(planner())
print("FOUND", json.dumps({"right": right, "servers": found, "jvm": jvm, "tries": len(tries), **tries[-1]}), flush=True)
spark.stop()
"""


def found_by(services: StandaloneProcess, tmp_path: Path, folder: str, setting: str) -> dict[str, Any]:
    wait_s = server_start_max_s if setting == "on" else 0
    arguments = [services.controller_uri, f"planners-{uuid.uuid4().hex[:8]}", folder, str(wait_s)]
    variables = {
        "PYSPARK_PYTHON": str(make_programs(tmp_path) / LAUNCHER),
        "PRAVEGA_PLANNER_SERVER": setting,
        WAIT.decode(): str(wait_ms),
        "TMPDIR": folder,
    }
    return found_by_session(SESSION, tmp_path, variables, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["on", pytest.param("off", marks=pytest.mark.long)])
def test_queries_of_one_session(services: StandaloneProcess, tmp_path: Path, setting: str) -> None:
    """All events arrive once; a server is there for later queries, and gone with the session.

    Another program of the machine may touch what the server watches: it ends then, and the next query starts one.
    """
    with tempfile.TemporaryDirectory(prefix="planners-", dir="/tmp") as folder:
        found = found_by(services, tmp_path, folder, setting)
        assert found["right"] == [True] * 3
        assert found["servers"] == (setting == "on"), "no server came up in time"
        assert (found["parent"] != found["jvm"]) == (setting == "on"), found
        eventually_blocking(lambda: state_of(found["parent"]) == "", "the end of the session's processes")
        assert state_of(found["process"]) == ""
        assert not list(Path(folder).glob("pravega-spark-planners-*/*.socket"))
