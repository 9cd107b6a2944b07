"""Runs the optional jar in drivers of its own that have it in ``spark.jars``; the suite's driver stays without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from pravega_common.errors import ConfigurationError
from pravega_spark.jvm import jar as jvm_shim
from pravega_spark.jvm.jar import CATALOG_CLASS, jar_path
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.standalone.process import StandaloneProcess
from tests.spark.spark_child import ChildFailed, SparkChild
from tests.support.eventually import eventually_blocking
from tests.support.processes import state_of

REPOSITORY = Path(__file__).parents[2]
helper_end_max_s = 20.0
kills = 25


def configuration(jar: Path, folder: Path, controller: str) -> dict[str, str]:
    return {
        "spark.jars": str(jar),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalog.streams": CATALOG_CLASS,
        "spark.sql.catalog.streams.controller": controller,
        "spark.sql.catalog.streams.transaction_timeout_ms": "60000",
    }


@pytest.fixture(scope="module")
def child(jar: Path, services: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkChild]:
    folder = tmp_path_factory.mktemp("shim")
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    with SparkChild(folder, configuration(jar, folder, services.controller_uri), environment) as started:
        yield started


@pytest.fixture
def scope(child: SparkChild) -> str:
    """A new one, for one test."""
    name = f"shim{uuid.uuid4().hex[:8]}"
    child.run(sql, f"CREATE NAMESPACE streams.{name}")
    return name


# What runs in the child


def sql(spark: SparkSession, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last one."""
    rows: list[Any] = []
    for statement in statements:
        rows = spark.sql(statement).collect()
    return [tuple(row) for row in rows]


def copy_table(spark: SparkSession, source: str, target: str, checkpoint: str) -> dict[str, Any]:
    """``readStream.table`` to ``toTable`` over all there is; the query's last progress with rows."""
    query = (
        spark.readStream.option("startStreamCut", "earliest")
        .option("approx_bytes_per_trigger", "40")
        .table(source)
        .select("event")
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .toTable(target)
    )
    assert query.awaitTermination(150)
    batches = [item for item in query.recentProgress if item["numInputRows"]]
    return {
        "description": batches[-1]["sources"][0]["description"],
        "metrics": [dict(item["sources"][0]["metrics"]) for item in batches],
        "sink": batches[-1]["sink"]["description"],
    }


def count_in_update_mode(spark: SparkSession, source: str, controller: str, target: str, checkpoint: str) -> None:
    scope, stream = target.split(".")
    query = (
        spark.readStream.option("start_stream_cut", "earliest")
        .table(source)
        .groupBy("segment_id")
        .count()
        .selectExpr("cast(count AS string) AS event")
        .writeStream.format("pravega")
        .outputMode("update")
        .options(controller=controller, scope=scope, stream=stream, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)


def events_of(spark: SparkSession, table: str) -> list[str]:
    return sorted(row[0] for row in spark.sql(f"SELECT cast(event AS string) FROM {table}").collect())


def metrics_of(spark: SparkSession, reported: str | None, consumed: str | None) -> dict[str, str]:
    """``SourceMetrics.of``, which only the package's own classes may call."""
    # PySpark gives no public way to a class of the JVM.
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    types = gateway.new_array(jvm.java.lang.Class, 2)
    types[0] = jvm.java.lang.Class.forName("java.lang.String")
    types[1] = jvm.java.lang.Class.forName("java.util.Optional")
    method = loader.loadClass("pravegaspark.SourceMetrics").getDeclaredMethod("of", types)
    method.setAccessible(True)
    given = gateway.new_array(jvm.java.lang.Object, 2)
    given[0], given[1] = reported, jvm.java.util.Optional.ofNullable(consumed)
    return dict(method.invoke(None, given))


def columns_of(spark: SparkSession, table: str) -> list[str]:
    return spark.sql(f"SELECT * FROM {table}").columns


@contextmanager
def pushing_filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def counts_by_filters(spark: SparkSession, table: str) -> dict[str, int]:
    """The rows of one frame with two filters that the source takes, without any, and of both beside each other."""
    with pushing_filters(spark):
        frame = spark.read.option("pushFilters", "true").table(table)
        one, other = frame.where("segment_id = 0"), frame.where("segment_id = 1")
        # PySpark gives no public way to a plan.
        plan = one._jdf.queryExecution().executedPlan().toString()
        assert "Filter (" not in plan
        return {"one": one.count(), "all": frame.count(), "other": other.count(), "both": one.union(other).count()}


def counts_before_and_after(spark: SparkSession, table: str) -> tuple[int, int]:
    """The rows of one frame, and those of it that pass a filter after more was written."""
    with pushing_filters(spark):
        frame = spark.table(table)
        before = frame.count()
        spark.sql(f"INSERT INTO {table} VALUES ('more')")
        return before, frame.where("offset >= 0").count()


def properties_of(spark: SparkSession, table: str) -> dict[str, str]:
    shown = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect()}
    return dict(item.split("=", 1) for item in shown["Table Properties"].strip("[]").split(","))


def read_format(spark: SparkSession) -> list[str]:
    return spark.read.format("pravega").option("scope", "s").option("stream", "t").load().columns


def other_formats(spark: SparkSession, folder: str) -> int:
    spark.range(3).write.format("json").save(folder)
    return spark.read.format("json").load(folder).count()


# The catalog


def test_namespaces_are_scopes(child: SparkChild, scope: str) -> None:
    assert (scope,) in child.run(sql, "SHOW NAMESPACES IN streams")
    with pytest.raises(ChildFailed, match="SCHEMA_ALREADY_EXISTS"):
        child.run(sql, f"CREATE NAMESPACE streams.{scope}")
    child.run(sql, f"CREATE TABLE streams.{scope}.t")
    with pytest.raises(ChildFailed, match="SCHEMA_NOT_EMPTY"):
        child.run(sql, f"DROP NAMESPACE streams.{scope}")
    child.run(sql, f"DROP NAMESPACE streams.{scope} CASCADE")
    assert (scope,) not in child.run(sql, "SHOW NAMESPACES IN streams")
    with pytest.raises(ChildFailed, match="SCHEMA_NOT_FOUND"):
        child.run(sql, f"SHOW TABLES IN streams.{scope}")


def test_tables_are_streams(child: SparkChild, scope: str) -> None:
    child.run(sql, f"CREATE TABLE streams.{scope}.one", f"CREATE TABLE IF NOT EXISTS streams.{scope}.one")
    child.run(sql, f"CREATE TABLE streams.{scope}.two AS SELECT 'x' AS event, 'k' AS routing_key")
    assert [row[1] for row in child.run(sql, f"SHOW TABLES IN streams.{scope}")] == ["one", "two"]
    with pytest.raises(ChildFailed, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        child.run(sql, f"CREATE TABLE streams.{scope}.one")
    assert child.run(events_of, f"streams.{scope}.two") == ["x"]
    child.run(sql, f"DROP TABLE streams.{scope}.one")
    assert [row[1] for row in child.run(sql, f"SHOW TABLES IN streams.{scope}")] == ["two"]
    with pytest.raises(ChildFailed, match="TABLE_OR_VIEW_NOT_FOUND"):
        child.run(sql, f"SELECT * FROM streams.{scope}.one")
    child.run(sql, f"DROP TABLE IF EXISTS streams.{scope}.one")


def test_insert_and_select(child: SparkChild, scope: str) -> None:
    table = f"streams.{scope}.t"
    child.run(
        sql,
        f"CREATE TABLE {table}",
        f"INSERT INTO {table} VALUES ('a', 'key'), ('b', 'key')",
        f"INSERT INTO {table} VALUES ('c')",
        f"INSERT INTO {table} SELECT 'd' AS value",
    )
    assert child.run(events_of, table) == ["a", "b", "c", "d"]
    ((head, tail),) = child.run(sql, f"SELECT * FROM {table} WITH (metadata='StreamInfo')")
    child.run(sql, f"INSERT INTO {table} VALUES ('e')")
    assert child.run(events_of, f"{table} WITH (startStreamCut='{tail}')") == ["e"]
    assert child.run(events_of, f"{table} WITH (start_stream_cut='{head}', end_stream_cut='{tail}')") == list("abcd")


def test_tables_of_records_beside_tables_of_events(child: SparkChild, scope: str) -> None:
    child.run(
        sql,
        f"CREATE TABLE streams.{scope}.events USING pravega",
        f"INSERT INTO streams.{scope}.events SELECT 'x' AS event",
        f"SELECT event FROM streams.{scope}.events",
        f"CREATE TABLE streams.{scope}.t (key BINARY, value BINARY, timestamp TIMESTAMP) USING pravega"
        " OPTIONS (format ' Record')",
        f"INSERT INTO streams.{scope}.t SELECT 'k' AS key, 'v' AS value, timestamp_millis(5) AS timestamp",
        f"INSERT INTO streams.{scope}.t SELECT 'k' AS key, CAST(NULL AS STRING) AS value",
    )
    columns = "CAST(key AS STRING), CAST(value AS STRING), headers, unix_millis(timestamp)"
    rows = child.run(sql, f"SELECT {columns} FROM streams.{scope}.t ORDER BY offset")
    assert rows == [("k", "v", None, 5), ("k", None, None, None)]
    ((plain,),) = child.run(sql, f"SELECT count(event) FROM streams.{scope}.t WITH (format='event')")
    assert plain == 2
    child.run(sql, f"INSERT INTO streams.{scope}.t VALUES ('k', 'w'), ('l', 'x')")
    assert child.run(sql, f"SELECT count(*) FROM streams.{scope}.t WHERE value IN ('w', 'x')") == [(2,)]


def test_the_column_of_times_is_there_where_it_was_asked_for(child: SparkChild, scope: str) -> None:
    plain, timed = f"streams.{scope}.plain", f"streams.{scope}.timed"
    child.run(sql, f"CREATE TABLE {plain}", f"CREATE TABLE {timed} OPTIONS (ingest_time 'true')")
    columns = ["event", "scope", "stream", "segment_id", "offset"]
    assert child.run(columns_of, plain) == columns
    assert child.run(columns_of, timed) == [*columns, "ingest_time"]
    assert child.run(columns_of, f"{plain} WITH (ingestTime='true')") == [*columns, "ingest_time"]
    child.run(sql, f"INSERT INTO {plain} VALUES ('a')")
    assert child.run(sql, f"SELECT ingest_time IS NULL FROM {plain} WITH (ingest_time='true')") == [(False,)]


def test_each_filter_of_a_frame_is_planned_by_itself(child: SparkChild, scope: str) -> None:
    table = f"streams.{scope}.t"
    child.run(
        sql,
        f"CREATE TABLE {table} OPTIONS (default_num_segments '2')",
        f"INSERT INTO {table} SELECT cast(id AS string) AS event, cast(id AS string) AS routing_key FROM range(20)",
    )
    counts = child.run(counts_by_filters, table)
    assert counts["one"] + counts["other"] == counts["all"] == counts["both"] == 20 and counts["one"] < 20


def test_a_frame_keeps_its_end_where_no_filters_are_taken(child: SparkChild, scope: str) -> None:
    child.run(sql, f"CREATE TABLE streams.{scope}.t", f"INSERT INTO streams.{scope}.t VALUES ('a'), ('b')")
    assert child.run(counts_before_and_after, f"streams.{scope}.t") == (2, 2)


def test_options_of_create_table(child: SparkChild, scope: str, services: StandaloneProcess) -> None:
    table = f"streams.{scope}.t"
    child.run(
        sql,
        f"CREATE TABLE {table} OPTIONS (default_num_segments '3', default_retention_size_bytes '1000000',"
        f" end_stream_cut 'latest', controller '{services.controller_uri}')",
    )
    shown = child.run(properties_of, table)
    assert shown.pop("stream.tail_stream_cut") == shown.pop("stream.head_stream_cut")
    assert shown == {
        "option.default_num_segments": "3",
        "option.default_retention_size_bytes": "1000000",
        "option.end_stream_cut": "latest",
        "stream.bytes": "0",
        "stream.controller": services.controller_uri,
        "stream.name": f"{scope}/t",
        "stream.segments": "3",
    }
    ((statement,),) = child.run(sql, f"SHOW CREATE TABLE {table}")
    child.run(sql, f"DROP TABLE {table}", statement)
    # The cuts are others: segments of a stream that comes again go on with their numbers.
    assert shown.items() <= child.run(properties_of, table).items()


def test_table_of_the_session_catalog_keeps_its_options(
    child: SparkChild, scope: str, services: StandaloneProcess
) -> None:
    options = f"controller '{services.controller_uri}', scope '{scope}', stream 't', default_num_segments '2'"
    child.run(sql, f"CREATE TABLE {scope}_t USING pravega OPTIONS ({options})", f"INSERT INTO {scope}_t VALUES ('a')")
    assert child.run(events_of, f"{scope}_t") == ["a"]
    assert child.run(events_of, f"streams.{scope}.t") == ["a"]
    child.run(sql, f"DROP TABLE {scope}_t")
    assert child.run(events_of, f"streams.{scope}.t") == ["a"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE {s}.x OPTIONS (default_num_segment '3')", "did you mean 'default_num_segments'"),
        ("CREATE TABLE {s}.x OPTIONS (default_num_segments '0')", "default_num_segments.*at least 1"),
        ("CREATE TABLE {s}.x OPTIONS (scope 'other')", "the table is .*leave the option out"),
        ("CREATE TABLE {s}.x (id int)", "has no column 'id'"),
        ("CREATE TABLE {s}.x USING parquet", "USING parquet cannot be"),
        ("CREATE TABLE {s}.x COMMENT 'words'", "has no comment"),
        ("CREATE TABLE {s}.`a/b`", "a/b"),
        ("CREATE NAMESPACE streams.words COMMENT 'words'", "has no properties"),
        ("ALTER TABLE {s}.t SET TBLPROPERTIES ('a'='b')", "cannot be altered"),
        ("ALTER TABLE {s}.t RENAME TO {s}.u", "cannot be renamed"),
        ("INSERT OVERWRITE {s}.t VALUES ('a')", "cannot be overwritten"),
        ("INSERT INTO {s}.t SELECT 1 AS event", "must be a string or binary"),
        ("SELECT * FROM {s}.t WITH (stream='other')", "option 'stream' is 'other'.*leave the option out"),
        ("SELECT * FROM {s}.t WITH (path='a/b')", "option 'path' is 'a/b'.*leave the option out"),
        ("SELECT * FROM {s}.t WITH (start_stream='x')", "unknown option 'start_stream'"),
    ],
)
def test_refusals(child: SparkChild, refusing_scope: str, statement: str, message: str) -> None:
    with pytest.raises(ChildFailed, match=f"(?s){message}"):
        child.run(sql, statement.format(s=f"streams.{refusing_scope}"))


@pytest.fixture(scope="module")
def refusing_scope(child: SparkChild) -> str:
    name = f"shim{uuid.uuid4().hex[:8]}"
    child.run(sql, f"CREATE NAMESPACE streams.{name}", f"CREATE TABLE streams.{name}.t")
    return name


# Streams


def test_streaming_tables_with_metrics(
    child: SparkChild, scope: str, services: StandaloneProcess, tmp_path: Path
) -> None:
    source, target = f"streams.{scope}.source", f"streams.{scope}.target"
    child.run(
        sql,
        f"CREATE TABLE {source} OPTIONS (default_num_segments '2')",
        f"CREATE TABLE {target}",
        f"INSERT INTO {source} SELECT lpad(id, 8, '0') AS event, cast(id AS string) AS routing_key FROM range(10)",
    )
    progress = child.run(copy_table, source, target, str(tmp_path / "checkpoint"))
    assert child.run(events_of, target) == [f"{number:08}" for number in range(10)]
    assert progress["description"] == f"Pravega[{scope}/source at {services.controller_uri}]"
    assert progress["sink"] == f"Pravega[{scope}/target at {services.controller_uri}]"
    # An event of 8 bytes takes 16 in its segment.
    assert sum(int(item["last_batch_bytes"]) for item in progress["metrics"]) == 160
    assert progress["metrics"][-1] == progress["metrics"][-1] | {"lag_bytes": "0", "segments": "2", "streams": "1"}
    lags = [int(item["lag_bytes"]) for item in progress["metrics"]]
    assert lags == sorted(lags, reverse=True)


def test_metrics_from_the_offsets(child: SparkChild) -> None:
    reported = SourceOffset({"s/a": {0: 100, 1: 50}, "s/b": {0: 7}}).to_json() | {"lag_bytes": 40, "lag_events": 3}
    # Segment 0 of the first stream was read to its seal, and its successors are to be read next.
    consumed = SourceOffset(
        {"s/a": {1: 30, 1 << 32: 0}, "s/b": {0: 7}},
        {"s/a": {0: 10, 1: 20}, "s/b": {0: 7}},
        {"s/a": {0: 95}},
    ).to_json()
    latest = {"lag_bytes": "40", "lag_events": "3", "segments": "3", "streams": "2"}
    assert child.run(metrics_of, json.dumps(reported), json.dumps(consumed)) == latest | {"last_batch_bytes": "95"}
    assert child.run(metrics_of, json.dumps(reported), None) == latest
    # Segment 0 had nothing left when it was sealed, so that its successors were read at once.
    scaled = SourceOffset({"s/a": {1: 20, 1 << 32: 7}}, {"s/a": {0: 100, 1: 20}}).to_json()
    assert child.run(metrics_of, json.dumps(reported), json.dumps(scaled)) == latest | {"last_batch_bytes": "7"}
    assert child.run(metrics_of, None, "no JSON") == {}


def test_update_mode_appends_what_changed(
    child: SparkChild, scope: str, services: StandaloneProcess, tmp_path: Path
) -> None:
    source, checkpoint = f"streams.{scope}.source", str(tmp_path / "checkpoint")
    child.run(sql, f"CREATE TABLE {source}", f"INSERT INTO {source} VALUES ('a'), ('b')")
    target = f"{scope}.counts"
    child.run(count_in_update_mode, source, services.controller_uri, target, checkpoint)
    child.run(sql, f"INSERT INTO {source} VALUES ('c')")
    child.run(count_in_update_mode, source, services.controller_uri, target, checkpoint)
    assert child.run(events_of, f"streams.{target}") == ["2", "3"]


# Where it does not fit


def test_helper_ends_with_its_session(jar: Path, services: StandaloneProcess, tmp_path: Path) -> None:
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    with SparkChild(tmp_path, configuration(jar, tmp_path, services.controller_uri), environment) as short:
        before = helpers(services.controller_uri)
        for _ in range(kills):
            short.run(sql, "SHOW NAMESPACES IN streams")
            (started,) = helpers(services.controller_uri) - before
            # Killed, it is missed at the next call only, which starts another one, however soon after its end it comes.
            os.kill(started, 9)
            wait_gone(started, but_for="")
        short.run(sql, "SHOW NAMESPACES IN streams")
        (again,) = helpers(services.controller_uri) - before
    wait_gone(again)


def helpers(controller: str) -> set[int]:
    """Process ids of catalogs' helpers."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if b"pravega_spark.jvm.catalog_helper" in words and controller.encode() in words:
            found.add(int(entry.name))
    return found


def wait_gone(pid: int, *, but_for: str = "Z") -> None:
    """``but_for``: a state that counts as gone, too. While one is a zombie, threads of it may still have its pipes."""
    eventually_blocking(lambda: state_of(pid) in ("", but_for), f"the end of the helper {pid}", helper_end_max_s)


def test_python_without_the_package(jar: Path, tmp_path: Path) -> None:
    # Without the site module, so without what is installed as a link to this repository.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    environment = {"PYSPARK_PYTHON": str(bare), "PYTHONPATH": sysconfig.get_path("purelib")}
    with SparkChild(tmp_path, configuration(jar, tmp_path, "tcp://localhost:1"), environment) as lonely:
        message = f"(?s)the Python that Spark uses \\({bare}\\) does not have its package.*-m pip install pravega-spark"
        with pytest.raises(ChildFailed, match=message):
            lonely.run(read_format)
        with pytest.raises(ChildFailed, match=message):
            lonely.run(sql, "SHOW NAMESPACES IN streams")


def test_another_spark_is_refused_and_its_other_formats_work(jar: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jar"
    with zipfile.ZipFile(jar) as source, zipfile.ZipFile(other, "w") as target:
        for item in source.infolist():
            content = source.read(item)
            if item.filename == "pravegaspark/build.properties":
                content = b"spark=3.9.1\n"
            target.writestr(item, content)
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    with SparkChild(tmp_path, configuration(other, tmp_path, "tcp://localhost:1"), environment) as foreign:
        running = re.escape(pyspark.__version__)
        message = rf"the pravega-spark jar was built for Spark 3\.9, but this is Spark {running}.*take the jar out of"
        with pytest.raises(ChildFailed, match=message):
            foreign.run(read_format)
        with pytest.raises(ChildFailed, match=message):
            foreign.run(sql, "SHOW NAMESPACES IN streams")
        assert foreign.run(other_formats, str(tmp_path / "rows")) == 3


def test_building_again_does_nothing(jar: Path) -> None:
    before = jar.stat().st_mtime_ns
    subprocess.run([sys.executable, REPOSITORY / "jvm-shim" / "build"], check=True, capture_output=True)
    assert jar.stat().st_mtime_ns == before


def test_without_a_jar_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_shim, "_JARS", tmp_path / "jars")
    with pytest.raises(ConfigurationError, match="run jvm-shim/build"):
        jar_path()
