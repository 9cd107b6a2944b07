"""Checks envelopes: values come back, bytes are as documented, and other bytes are refused."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_spark.functions import from_envelope, to_envelope

SCHEMA = "id int, key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    (0, b"k", b"v", [("h", b"x")], EPOCH + timedelta(seconds=1_700_000_000, microseconds=123_456)),
    (1, None, None, None, None),
    (2, b"", b"", [], EPOCH),
    (3, "schlüssel 🔑".encode(), "wert ✓".encode(), [("kopf ü", b"zeile\n\"'\\"), ("kopf ü", b"")], None),
    (
        4,
        bytes(range(256)),
        bytes(range(255, -1, -1)) * 40,
        [("b", bytes(range(256)))],
        EPOCH - timedelta(microseconds=1),
    ),
    (5, None, b"only a value", [("empty", None)], EPOCH + timedelta(microseconds=1)),
    (6, b"tombstone", None, None, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    (7, b"\xe7\x01\x00", b"\xe7\x01\x00", [("x" * 300, b"y" * 3000)], datetime(1, 1, 1, tzinfo=UTC)),
    (8, None, None, [None, (None, b"no name"), ("h", b"x")], None),
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def enveloped(rows: DataFrame) -> DataFrame:
    return rows.withColumn("event", to_envelope("key", "value", "headers", "timestamp"))


def test_what_goes_in_comes_out(enveloped: DataFrame) -> None:
    opened = enveloped.select("*", from_envelope("event").alias("opened"))
    names = ["key", "value", "headers", "timestamp"]
    # Compared by Spark: Python's own time zone must not matter.
    differing = opened.where(" OR ".join(f"NOT ({name} <=> opened.{name})" for name in names))
    assert differing.select("id").collect() == []
    types = dict(opened.select("opened.*").dtypes)
    assert types == dict(enveloped.select(*names).dtypes)
    assert [row.is_null for row in opened.orderBy("id").select(F.isnull("opened").alias("is_null")).collect()] == [
        False
    ] * len(ROWS)


def documented_header(name: str | None, data: bytes | None) -> dict[str, str]:
    made = {} if name is None else {"key": name}
    return made | ({} if data is None else {"value": base64.b64encode(data).decode()})


def documented(row: tuple[Any, ...]) -> bytes:
    """The layout of the docstring, made a second way."""
    _, key, value, headers, timestamp = row
    present = sum(bit for bit, part in ((1, key), (2, value), (4, headers), (8, timestamp)) if part is not None)
    micros = 0 if timestamp is None else (timestamp - EPOCH) // timedelta(microseconds=1)
    entries = [None if header is None else documented_header(*header) for header in headers or []]
    packed = b"" if headers is None else json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    head = struct.pack(">BBBqii", 0xE7, 1, present, micros, len(key or b""), len(packed))
    return head + (key or b"") + packed + (value or b"")


def test_the_bytes_are_as_documented(enveloped: DataFrame) -> None:
    events = [bytes(row.event) for row in enveloped.orderBy("id").select("event").collect()]
    assert events == [documented(row) for row in ROWS]
    assert events[1].hex() == "e7010000000000000000000000000000000000"


def test_strings_and_missing_parts(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'schlüssel' AS k, '{\"a\": 1}' AS v, array(struct('h' AS key, 'text' AS value)) AS h")
    opened = frame.select(from_envelope(to_envelope(F.col("k"), "v", "h")).alias("e")).select("e.*").collect()[0]
    assert bytes(opened.key).decode() == "schlüssel"
    assert bytes(opened.value) == b'{"a": 1}'
    assert [(header.key, bytes(header.value)) for header in opened.headers] == [("h", b"text")]
    assert opened.timestamp is None
    only_value = frame.select(from_envelope(to_envelope(None, "v")).alias("e")).select("e.*").collect()[0]
    assert (only_value.key, only_value.headers) == (None, None)


def test_no_python_runs_for_a_row(enveloped: DataFrame) -> None:
    plan = enveloped.select(from_envelope("event"))._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (b"plain text", "an event of 10 bytes is no whole envelope"),
        (b"", "an event of 0 bytes is no whole envelope"),
        (b"\xe7\x01\x0f", "an event of 3 bytes is no whole envelope"),
        (struct.pack(">BBBqii", 0xE7, 1, 1, 0, 5, 0) + b"four", "an event of 23 bytes is no whole envelope"),
        (struct.pack(">BBBqII", 0xE7, 1, 1, 0, 2**32 - 1, 0) + b"k", "an event of 20 bytes is no whole envelope"),
        (
            struct.pack(">BBBqII", 0xE7, 1, 7, 0, 2**31 - 1, 2**31 - 1) + b"k",
            "an event of 20 bytes is no whole envelope",
        ),
        (struct.pack(">BBBqii", 0xE7, 2, 0, 0, 0, 0), "an envelope of version 2, this function reads version 1"),
    ],
)
def test_what_is_no_envelope(spark: SparkSession, event: bytes, complaint: str) -> None:
    frame = spark.createDataFrame([(event,), (None,)], "event binary")
    with pytest.raises(PySparkException, match=complaint):
        frame.select(from_envelope("event")).collect()
    opened = frame.select(from_envelope("event", invalid="null").alias("e")).collect()
    assert [row.e for row in opened] == [None, None]


def test_a_null_event_is_a_null_struct(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(None,)], "event binary")
    assert frame.select(from_envelope("event").alias("e")).collect()[0].e is None


def test_the_word_for_invalid_events_is_checked() -> None:
    with pytest.raises(ValueError, match="invalid is 'skip', but must be 'fail' or 'null'"):
        from_envelope("event", invalid="skip")
