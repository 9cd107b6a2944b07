"""Reads streams by option ``native_reader``, in a driver that has the optional jar."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pravega_spark
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.spark_version import ADMISSION_CONTROL, has
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.controller.address import ControllerAddress
from tests.spark.spark_child import ChildFailed, SparkChild

REPOSITORY = Path(__file__).parents[2]
COLUMNS = "event binary, scope string, stream string, segment_id bigint, offset bigint"
large_event_bytes = 8 * 1024 * 1024
"""The largest event that may be written: with its header it does not fit into the window of the native reader."""


@pytest.fixture(scope="module")
def child(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkChild]:
    configuration = {
        "spark.jars": str(jar),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        # With digits of its own, which nothing that Python reads may have.
        "spark.driver.extraJavaOptions": "-Duser.language=ar -Duser.country=EG",
        "spark.sql.shuffle.partitions": "2",
    }
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    with SparkChild(tmp_path_factory.mktemp("native"), configuration, environment) as started:
        yield started


@pytest.fixture
def place(services: StandaloneProcess) -> dict[str, str]:
    return {"controller": services.controller_uri, "scope": f"native{uuid.uuid4().hex[:8]}", "stream": "s"}


# What runs in the child


def write(spark: SparkSession, place: dict[str, str], query: str) -> None:
    options = {**place, "default_num_segments": "3"}
    spark.sql(query).write.format("pravega").mode("append").options(**options).save()


def _frame(spark: SparkSession, place: dict[str, str], is_native: bool, columns: str) -> DataFrame:
    # In the JVM as in Python, neither capitals nor spaces around the word count.
    options = {**place, "native_reader": f" {is_native} ", "min_partitions": "5"}
    return spark.read.format("pravega").schema(columns).options(**options).load()


def _digest(frame: DataFrame) -> list[tuple[object, ...]]:
    hashed = [f"sha2({name}, 256)" if name == "event" else name for name in frame.columns]
    return sorted(tuple(row) for row in frame.selectExpr(*hashed).collect())


def differences(spark: SparkSession, place: dict[str, str], columns: str) -> tuple[int, int]:
    """The number of rows, and of those that only one of both readers has."""
    ours, native = (_digest(_frame(spark, place, is_native, columns)) for is_native in (False, True))
    return len(ours), len(set(ours) ^ set(native)) + abs(len(ours) - len(native))


def is_columnar(spark: SparkSession, place: dict[str, str], columns: str) -> bool:
    """Whether Spark takes columns from the scan, as it does from the native reader alone."""
    frame = _frame(spark, place, True, columns)
    return "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()


def cuts(spark: SparkSession, place: dict[str, str]) -> list[str]:
    """The ends of a read by Python and of one by the native reader."""
    return [pravega_spark.cut_of(_frame(spark, place, is_native, COLUMNS)) for is_native in (False, True)]


def events_after_truncation(spark: SparkSession, place: dict[str, str], fails: bool) -> list[str]:
    """The events of a read that was planned before the stream lost all but what is written last."""
    options = {**place, "native_reader": "true", "fail_on_data_loss": str(fails).lower(), "end_stream_cut": "latest"}
    write(spark, place, "SELECT 'lost' AS event FROM range(100)")
    gateway = ServiceGateway(ControllerAddress.of(place["controller"]))
    cut = gateway.tail_cut(place["scope"], place["stream"])
    write(spark, place, "SELECT 'left' AS event FROM range(10)")
    frame = spark.read.format("pravega").options(**options).load()
    frame._jdf.queryExecution().executedPlan()
    gateway.truncate_stream(place["scope"], place["stream"], cut)
    gateway.close()
    return [row.event.decode() for row in frame.collect()]


def copied(spark: SparkSession, place: dict[str, str], folder: str, spelled: str) -> list[tuple[int, int]]:
    """Segments and offsets that a streaming query reads, where Spark limits batches in some of 20 KB."""
    how = {"approx_bytes_per_trigger": "20000"} if has(ADMISSION_CONTROL) else {"order": "none"}
    options = {**place, **how, "native_reader": spelled, "start_stream_cut": "earliest"}
    query = (
        spark.readStream.format("pravega")
        .options(**options)
        .load()
        .select("segment_id", "offset")
        .writeStream.format("parquet")
        .options(path=f"{folder}/rows", checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    return sorted(tuple(row) for row in spark.read.parquet(f"{folder}/rows").collect())


def places_of(spark: SparkSession, place: dict[str, str]) -> list[tuple[int, int]]:
    return sorted(tuple(row) for row in _frame(spark, place, False, "segment_id bigint, offset bigint").collect())


# Tests

SOME_EVENTS = "SELECT repeat(id, id % 300) AS event, cast(id AS string) AS routing_key FROM range(20000)"


@pytest.mark.parametrize("columns", [COLUMNS, "offset bigint, event binary", "stream string, segment_id bigint"])
def test_the_same_rows_as_by_python(child: SparkChild, place: dict[str, str], columns: str) -> None:
    child.run(write, place, SOME_EVENTS)
    assert child.run(is_columnar, place, columns)
    rows, different = child.run(differences, place, columns)
    assert rows == 20_000 and different == 0


def test_an_event_without_room_is_left_to_python_with_what_follows(child: SparkChild, place: dict[str, str]) -> None:
    small = "SELECT cast(id AS string) AS event, 'k' AS routing_key FROM range(1000)"
    child.run(write, place, small)
    child.run(write, place, f"SELECT repeat('x', {large_event_bytes}) AS event, 'k' AS routing_key")
    child.run(write, place, small)
    assert child.run(is_columnar, place, COLUMNS)
    assert child.run(differences, place, COLUMNS) == (2001, 0)


def test_the_end_of_a_read_is_known_with_the_jar(child: SparkChild, place: dict[str, str]) -> None:
    child.run(write, place, SOME_EVENTS)
    by_python, by_native = child.run(cuts, place)
    assert by_python == by_native and StreamCut.from_text(by_python).scope == place["scope"]


def test_what_was_lost_since_the_plan_is_skipped_by_python(child: SparkChild, place: dict[str, str]) -> None:
    assert child.run(events_after_truncation, place, False) == ["left"] * 10


def test_what_was_lost_since_the_plan_is_the_error_that_python_has(child: SparkChild, place: dict[str, str]) -> None:
    with pytest.raises(ChildFailed, match="fail_on_data_loss"):
        child.run(events_after_truncation, place, True)


def test_other_columns_are_read_by_python(child: SparkChild, place: dict[str, str]) -> None:
    child.run(write, place, SOME_EVENTS)
    columns = "event string, ingest_time timestamp"
    assert not child.run(is_columnar, place, columns)
    assert child.run(differences, place, columns) == (20_000, 0)


@pytest.mark.parametrize("spelled", ["true", " True", "\u00a0true"])
def test_a_streaming_query_reads_each_event_once(
    child: SparkChild, place: dict[str, str], tmp_path: Path, spelled: str
) -> None:
    """Python takes the option with any space around it, and plans the partitions before the jar is asked."""
    child.run(write, place, "SELECT repeat('y', 50) AS event, cast(id AS string) AS routing_key FROM range(2000)")
    assert child.run(copied, place, str(tmp_path), spelled) == child.run(places_of, place)
