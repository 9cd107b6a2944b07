"""Columns of a source and a sink of records."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_spark.rows.columns import RECORD_SOURCE_SCHEMA, RowBuilder, SinkColumns, check_source_schema
from pravega_spark.rows.record_columns import RecordColumns, record_columns
from pravega_spark.rows.record_schema import RECORD_PARTS
from tests.support.record_reference import PlainRecord, pack
from tests.support.repository import ROOT

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", "UTC")
FULL = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", TIME),
        ("stream", pa.string()),
        ("offset", pa.int64()),
    ]
)
RECORDS = [PlainRecord(b"v", b"k", (("a", b"1"),), 1_000_000), PlainRecord(None, b"k"), PlainRecord(b"\xff")]


def build(schema: pa.Schema, events: list[bytes]) -> pa.RecordBatch:
    check_source_schema(schema, records=True)
    offsets = np.arange(len(events), dtype=np.int64) * 10
    builder = RowBuilder(schema, "s", "t", 7)
    return builder.build(lambda: pa.array(events, pa.binary()), lambda: offsets, len(events))


def test_all_columns_of_records() -> None:
    batch = build(FULL, [pack(record) for record in RECORDS])
    batch.validate(full=True)
    assert batch.schema == FULL
    assert batch.drop_columns(["stream", "offset"]).to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "a", "value": b"1"}],
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        },
        {"key": b"k", "value": None, "headers": None, "timestamp": None},
        {"key": None, "value": b"\xff", "headers": None, "timestamp": None},
    ]
    assert batch.column("offset").to_pylist() == [0, 10, 20]


def test_a_subset_as_text() -> None:
    schema = pa.schema([("value", pa.string()), pa.field("key", pa.string(), nullable=False)])
    batch = build(schema, [pack(record) for record in RECORDS[:2]])
    assert batch.schema.equals(schema)
    assert batch.to_pylist() == [{"value": "v", "key": "k"}, {"value": None, "key": "k"}]


def test_headers_that_the_schema_says_are_never_null() -> None:
    kind = pa.list_(
        pa.field("item", pa.struct([pa.field("key", pa.string(), False), ("value", pa.binary())]), nullable=False)
    )
    batch = build(pa.schema([("headers", kind)]), [pack(RECORDS[0])])
    assert batch.schema.field("headers").type == kind
    assert batch.column(0).to_pylist() == [[{"key": "a", "value": b"1"}]]


@pytest.mark.parametrize(
    ("schema", "event", "message"),
    [
        (pa.schema([("value", pa.string())]), pack(PlainRecord(b"\xff")), "has a value that is not UTF-8; read column"),
        (pa.schema([("key", pa.binary())]), b"plain event", "is no record: it has less than 19 bytes"),
        (pa.schema([("timestamp", TIME)]), b"a plain event, not packed", "is no record: it begins with 0x6120"),
        (pa.schema([("headers", HEADERS)]), pack(RECORDS[0])[:-3], "is no record: its lengths are more than"),
        (pa.schema([pa.field("value", pa.binary(), nullable=False)]), pack(RECORDS[1]), "has no value, which the sch"),
    ],
)
def test_the_place_of_a_bad_record_is_named(schema: pa.Schema, event: bytes, message: str) -> None:
    with pytest.raises(DataCorruption, match=rf"^the event at offset 10 of segment 7\.#epoch\.0 of s/t {message}"):
        build(schema, [pack(RECORDS[0]), event])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("event", pa.binary()), "no column 'event'; its columns are: key binary"),
        (("key", pa.int64()), "column 'key' must be binary or string, not int64"),
        (("headers", pa.map_(pa.string(), pa.binary())), "column 'headers' must be array<struct<key: string, value"),
        (("headers", pa.list_(pa.string())), "column 'headers' must be array"),
        (("timestamp", pa.timestamp("us")), "column 'timestamp' must be timestamp"),
        (("offset", pa.int32()), "column 'offset' must be bigint"),
    ],
)
def test_refused_schemas_of_records(field: tuple[str, pa.DataType], message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        check_source_schema(pa.schema([field]), records=True)


def test_a_read_of_events_leads_to_the_option() -> None:
    with pytest.raises(InvalidArgument, match=r"no column 'timestamp'; .* with option format=record"):
        check_source_schema(pa.schema([("timestamp", TIME)]))


def test_every_part_is_in_the_schema() -> None:
    assert [part for part in RECORD_PARTS if f"{part} " not in RECORD_SOURCE_SCHEMA] == []


# ---- sink ------------------------------------------------------------------------------------------------------------


def test_rows_become_events_with_their_keys() -> None:
    fields = [
        ("timestamp", "timestamp"),
        ("Key", "int"),
        ("offset", "bigint"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("VALUE", "string"),
        ("stream", "string"),
    ]
    found = record_columns(fields, with_stream=True)
    assert found == RecordColumns(4, 1, 3, 0, 5)
    assert record_columns(fields).stream is None
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1_000_000, None], TIME),
            pa.array([5, None], pa.int32()),
            pa.array([0, 0]),
            pa.array([[("a", b"1")], None], HEADERS),
            pa.array(["v", None]),
            pa.array(["x", "y"]),
        ],
        names=[name for name, _ in fields],
    )
    packed = found.pack(rows)
    assert found.packed == SinkColumns(0, 1, 2)
    assert packed.column(0).to_pylist() == [
        pack(PlainRecord(b"v", b"5", (("a", b"1"),), 1_000_000)),
        pack(PlainRecord(None)),
    ]
    assert packed.column(1).to_pylist() == [5, None]
    assert packed.column(2).to_pylist() == ["x", "y"]


def test_a_value_alone() -> None:
    found = record_columns([("value", "binary")])
    assert found.packed == SinkColumns(0, None)
    packed = found.pack(pa.RecordBatch.from_arrays([pa.array([b"v"])], names=["value"]))
    assert packed.column(0).to_pylist() == [pack(PlainRecord(b"v"))]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("key", "string")], "needs a column 'value', and has key; .* tombstone"),
        ([("event", "binary"), ("value", "binary")], "columns 'event' would be lost: with format=record"),
        ([("value", "binary"), ("routing_key", "string")], "columns 'routing_key' would be lost"),
        ([("value", "binary"), ("topic", "string"), ("partition", "int")], "'topic', 'partition' would be lost"),
        ([("value", "struct<a:interval>")], r"is struct<a:interval>; write to_json\(value\) AS value"),
        ([("value", "string"), ("key", "struct<a:int>")], r"column 'key' is struct<a:int>; cast it"),
        ([("value", "binary"), ("timestamp", "timestamp_ntz")], "but column 'timestamp' is timestamp_ntz; cast it"),
        ([("value", "binary"), ("headers", "binary")], "but column 'headers' is binary; cast it"),
        ([("value", "binary"), ("Value", "binary")], "columns 'value' and 'Value' mean the same"),
    ],
)
def test_refused_columns_of_records(fields: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        record_columns(fields)


# ---- docs/records.md -------------------------------------------------------------------------------------------------


def test_the_code_of_the_document_agrees() -> None:
    text = (ROOT / "docs/records.md").read_text()
    names: dict[str, object] = {}
    exec(re.findall(r"```python\n(import struct.*?)```", text, re.DOTALL)[0], names)
    packs, unpacks = names["pack"], names["unpack"]
    assert callable(packs) and callable(unpacks)
    for record in (PlainRecord(b"v", b"k", None, 5), PlainRecord(None, b"k"), PlainRecord(b""), PlainRecord(b"", b"")):
        event = packs(record.key, record.value, record.timestamp)
        assert event == pack(record)
        assert unpacks(event) == (record.key, record.value, record.timestamp)
    assert unpacks(pack(RECORDS[0])) == (b"k", b"v", 1_000_000)
    shown = re.findall(r"^E7 02 .*$", text, re.MULTILINE)
    assert [bytes.fromhex(line) for line in shown] == [
        pack(PlainRecord(b"v", b"k")),
        pack(PlainRecord(None, b"k", None, 1000)),
    ]
