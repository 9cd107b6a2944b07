"""Columns of source and sink."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_spark.rows.columns import RowBuilder, SinkColumns, check_source_schema, sink_columns

FULL = pa.schema(
    [
        ("event", pa.binary()),
        ("scope", pa.string()),
        ("stream", pa.string()),
        ("segment_id", pa.int64()),
        ("offset", pa.int64()),
    ]
)


def build(schema: pa.Schema, events: list[bytes]) -> pa.RecordBatch:
    builder = RowBuilder(schema, "s", "t", 7)
    offsets = np.arange(len(events), dtype=np.int64) * 10
    return builder.build(lambda: pa.array(events, pa.binary()), lambda: offsets, len(events))


def test_all_columns() -> None:
    batch = build(FULL, [b"a", b"b"])
    assert batch.schema == FULL
    assert batch.to_pylist() == [
        {"event": b"a", "scope": "s", "stream": "t", "segment_id": 7, "offset": 0},
        {"event": b"b", "scope": "s", "stream": "t", "segment_id": 7, "offset": 10},
    ]


def test_any_subset_in_any_order_with_its_nullability() -> None:
    schema = pa.schema([pa.field("offset", pa.int64(), nullable=False), pa.field("event", pa.string())])
    check_source_schema(schema)
    batch = build(schema, [b"a"])
    assert batch.schema.equals(schema)
    assert batch.to_pylist() == [{"offset": 0, "event": "a"}]


def test_columns_nobody_wants_are_not_built() -> None:
    builder = RowBuilder(pa.schema([("stream", pa.string())]), "s", "t", 7)

    def never() -> pa.Array:
        raise AssertionError

    assert builder.build(never, never, 3).to_pylist() == [{"stream": "t"}] * 3


def test_constants_grow_and_shrink_with_the_batch() -> None:
    builder = RowBuilder(pa.schema([("segment_id", pa.int64())]), "s", "t", 7)
    for count in (3, 1, 5):
        assert (
            builder.build(lambda: pa.array([]), lambda: np.zeros(0, np.int64), count).column(0).to_pylist()
            == [7] * count
        )


def test_text_must_be_utf8() -> None:
    with pytest.raises(DataCorruption, match=r"event at offset 10 of segment 7\.#epoch\.0 of s/t is not UTF-8"):
        build(pa.schema([("event", pa.string())]), [b"fine", b"\xff\xfe"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "without columns"),
        ([("key", pa.string())], "no column 'key'; its columns are: event binary"),
        ([("event", pa.int64())], "column 'event' must be binary or string, not bigint"),
        ([("offset", pa.int32())], "column 'offset' must be bigint, not int32"),
        ([("event", pa.binary()), ("event", pa.binary())], "names a column twice"),
    ],
)
def test_refused_schemas(fields: list[tuple[str, pa.DataType]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_source_schema(pa.schema(fields))


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ([("event", "binary")], SinkColumns(0, None)),
        ([("Offset", "bigint"), ("EVENT", "string"), ("routing_key", "string")], SinkColumns(1, 2)),
        ([("key", "string"), ("value", "binary"), ("stream", "string")], SinkColumns(1, 0)),
        ([("key", "string"), ("event", "struct<a:int>")], SinkColumns(1, 0)),
        ([("event", "map<string,array<int>>")], SinkColumns(0, None)),
        ([("event", "struct<product:string,variant:string>")], SinkColumns(0, None)),
        ([("event", "array<struct<interval:int,udt:int,study_interval:date>>")], SinkColumns(0, None)),
        ([("event", "struct<time:timestamp,geometry:binary>")], SinkColumns(0, None)),
        ([("event", "struct<a:void,void:array<int>,b:struct<c:map<string,int>,d:void>>")], SinkColumns(0, None)),
    ],
)
def test_sink_columns(fields: list[tuple[str, str]], columns: SinkColumns) -> None:
    assert sink_columns(fields) == columns


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("value", "string"), ("topic", "string")], r"columns 'topic' would be lost: .* drop them"),
        (
            [("event", "string"), *((f"c{number}", "int") for number in range(7))],
            r"columns 'c0', 'c1', 'c2', 'c3', 'c4' and 2 more would be lost",
        ),
        ([("a", "int"), ("b", "string")], r"required attribute 'event' not found among the columns to write \(a, b\)"),
        ([("event", "int")], "event attribute type must be a string or binary, but column 'event' is int"),
        ([("event", "array<variant>")], r"column 'event' is array<variant>; write to_json\(event\) AS event"),
        ([("event", "map<string,interval day to second>")], "column 'event' is map<string,interval day to second>"),
        ([("event", "struct<variant:variant>")], "column 'event' is struct<variant:variant>; write to_json"),
        ([("event", "struct<a:udt,b:int>")], "column 'event' is struct<a:udt,b:int>; write to_json"),
        ([("event", "struct<v:array<geometry(4326)>>")], r"column 'event' is struct<v:array<geometry\(4326\)>>; write"),
        ([("event", "map<string,geography(any)>")], r"column 'event' is map<string,geography\(any\)>; write"),
        ([("event", "array<time(6)>")], r"column 'event' is array<time\(6\)>; write"),
        ([("event", "array<void>")], r"column 'event' is array<void>; write to_json\(event\) AS event"),
        ([("event", "struct<a:int,m:map<void,void>>")], "column 'event' is struct<a:int,m:map<void,void>>; write"),
        ([("event", "map<string,struct<a:int,b:void>>")], "column 'event' is map<string,struct<a:int,b:void>>; write"),
        ([("event", "string"), ("key", "double")], "routing_key attribute type .* bigint, but column 'key' is double"),
        ([("event", "string"), ("value", "string")], "columns 'event' and 'value' mean the same"),
    ],
)
def test_refused_sink_columns(fields: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        sink_columns(fields)
