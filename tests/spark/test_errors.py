"""What a user sees of an error of the connector: one sentence, and no frames of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from tests.spark.streams import Streams

FEW = {"allow_create_scope": "false", "allow_create_stream": "false"}
"""Options of a write that creates nothing."""
TASK_HEADING = "An exception was thrown from the Python worker:"
"""What PySpark puts above the error of a task of a batch."""


def read_batch(streams: Streams) -> None:
    streams.read("missing").count()


def write_batch(streams: Streams) -> None:
    streams.write(streams.rows(0, 5), "missing", **FEW)


def read_stream(streams: Streams) -> None:
    streams.create("out")
    streams.run(streams.stream("missing").load().select("event"), "out")


def write_stream(streams: Streams) -> None:
    streams.create("in")
    streams.fill("in", 0, 5)
    streams.run(streams.stream("in").load().select("event"), "missing", **FEW)


def option_of_no_meaning(streams: Streams) -> None:
    streams.read("t", start_tim="now").count()


def stream_of_facts(streams: Streams) -> None:
    streams.create("out")
    rows = streams.spark.readStream.format("pravega").options(**streams.options("out", metadata="StreamInfo"))
    streams.run(rows.schema("event binary").load(), "out")


def null_in_a_task_of_a_batch(streams: Streams) -> None:
    streams.create("out")
    streams.write(streams.spark.range(5).selectExpr("cast(null as string) as event"), "out")


def null_in_a_task_of_a_stream(streams: Streams) -> None:
    streams.create("in")
    streams.create("out")
    streams.fill("in", 0, 5)
    streams.run(streams.stream("in").load().selectExpr("cast(null as string) as event"), "out")


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (read_batch, "stream does not exist: '{scope}/missing'"),
        (write_batch, "stream does not exist: '{scope}/missing'"),
        (read_stream, "stream does not exist: '{scope}/missing'"),
        (write_stream, "stream does not exist: '{scope}/missing'"),
        (option_of_no_meaning, "unknown option 'start_tim'; did you mean 'start_time'?"),
        (stream_of_facts, "option 'metadata' is of batch reads; a streaming read gives events"),
        (null_in_a_task_of_a_batch, " events are null"),
        (null_in_a_task_of_a_stream, " events are null"),
    ],
)
def test_an_error_is_one_sentence(streams: Streams, run: Callable[[Streams], None], sentence: str) -> None:
    streams.create("there")
    with pytest.raises(PySparkException) as caught:
        run(streams)
    shown = "".join(traceback.format_exception(caught.value))
    told = str(caught.value)
    first, *others = [line for line in told.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    if first == TASK_HEADING:
        first, *others = others
    assert sentence.format(scope=streams.scope) in first
    assert all(line.strip().startswith("SQLSTATE: ") for line in others), told
    assert "Traceback" not in told
    assert "/pravega_spark/" not in shown and "/pravega_streams/" not in shown, shown


def test_an_error_of_the_users_own_code_keeps_its_traceback(streams: Streams) -> None:
    def fails(event: bytes) -> bytes:
        raise ValueError(f"fails on purpose: {event!r}")

    streams.create("in")
    streams.create("out")
    streams.fill("in", 0, 5)
    with pytest.raises(PySparkException, match=r'(?s)Traceback .*File ".*test_errors\.py".*fails on purpose') as caught:
        streams.write(streams.read("in").select(udf(fails, "binary")("event").alias("event")), "out")
    assert "in fails" in str(caught.value)
