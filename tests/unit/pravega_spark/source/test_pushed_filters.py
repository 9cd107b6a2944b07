"""Filters that a batch read applies itself, against reading everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.filtering_batch_reader import FilteringBatchReader
from pravega_spark.source.partition_reader import SpanPartition
from pravega_spark.source.pushed_filters import pushed
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("stream", pa.string()), ("segment_id", pa.int64()), ("offset", pa.int64())])
Row = tuple[str, int, int]


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    made = FakeStreams(tmp_path)
    for stream in ("a", "b"):
        made.create(stream, 2)
        for segment in range(2):
            made.append(stream, segment, [b"x" * 10] * 20)
    return made


def source(streams: FakeStreams, kind: type[BatchReader]) -> Any:
    given = {"controller": streams.controller, "scope": "s", "stream": "a,b"}
    return kind(ReadOptions.parse(given, Use.BATCH_READ), SCHEMA)


def rows(reader: BatchReader) -> list[Row]:
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)


@pytest.mark.parametrize(
    ("filters", "keeps", "spans"),
    [
        ([EqualTo(("stream",), "a")], lambda row: row[0] == "a", 2),
        ([In(("stream",), ("b", "c"))], lambda row: row[0] == "b", 2),
        ([EqualTo(("segment_id",), 1)], lambda row: row[1] == 1, 2),
        ([Not(EqualTo(("segment_id",), 1)), EqualTo(("stream",), "b")], lambda row: row[:2] == ("b", 0), 1),
        ([GreaterThan(("segment_id",), 1)], lambda row: row[1] > 1, 0),
        ([GreaterThanOrEqual(("offset",), 180), LessThan(("offset",), 200)], lambda row: 180 <= row[2] < 200, 4),
        ([GreaterThan(("offset",), 180), LessThanOrEqual(("offset",), 216)], lambda row: 180 < row[2] <= 216, 4),
        ([EqualTo(("offset",), 342)], lambda row: row[2] == 342, 4),
        ([In(("offset",), (18, 36))], lambda row: row[2] in (18, 36), 4),
        ([GreaterThan(("offset",), 10_000)], lambda row: False, 0),
    ],
)
def test_the_right_rows_and_few_others(
    streams: FakeStreams, filters: list[Filter], keeps: Callable[[Row], bool], spans: int
) -> None:
    reader = source(streams, FilteringBatchReader)
    left = list(reader.pushFilters([IsNotNull(("offset",)), *filters]))
    assert all("offset" in item.attribute for item in left)
    read = rows(reader)
    expected = [row for row in rows(source(streams, BatchReader)) if keeps(row)]
    assert [row for row in read if keeps(row)] == expected
    if not left:
        assert read == expected
    assert len(read) <= len(expected) + 8
    read_from = [span for item in reader.partitions() if isinstance(item, SpanPartition) for span in item.spans]
    assert len(read_from) == spans


def test_offsets_inside_of_events(streams: FakeStreams) -> None:
    """No boundary is known just below: what is read begins well before."""
    reader = source(streams, FilteringBatchReader)
    list(reader.pushFilters([GreaterThan(("offset",), 181), LessThan(("offset",), 217)]))
    assert {row[2] for row in rows(reader)} >= {198, 216}
    assert max(row[2] for row in rows(reader)) == 216


def test_other_filters_are_left_to_spark() -> None:
    filters = [
        StringStartsWith(("stream",), "a"),
        EqualTo(("event",), b"x"),
        In(("stream",), ("a", None)),
        EqualTo(("other", "stream"), "a"),
    ]
    assert pushed(filters)[1] == filters


def test_only_a_reader_that_is_asked_for_has_the_method() -> None:
    """Spark refuses it unless spark.sql.python.filterPushdown.enabled is set."""
    assert "pushFilters" not in vars(BatchReader) and "pushFilters" in vars(DataSourceReader)
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    assert "pushFilters" in vars(FilteringBatchReader)
