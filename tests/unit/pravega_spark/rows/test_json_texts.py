"""Nested values become the JSON that Spark's ``to_json`` makes; ``tests/spark/test_nested_events.py`` compares them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark.rows.json_texts import json_texts, with_json

ROW = pa.struct([("a", pa.int64()), ("b", pa.string())])


def text(value: Any, kind: pa.DataType) -> str | None:
    [made] = json_texts(pa.array([value], kind)).to_pylist()
    return made  # type: ignore[no-any-return]


def one(value: Any, kind: pa.DataType) -> Any:
    """A value inside of a row."""
    made = text({"x": value}, pa.struct([("x", kind)]))
    assert made is not None
    return json.loads(made)["x"]


def test_fields_that_are_null_are_left_out() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": None, "b": None}, None]
    assert json_texts(pa.array(rows, ROW)).to_pylist() == ['{"a":1,"b":"x"}', '{"b":"y"}', "{}", None]


def test_nulls_in_arrays_and_maps_stay() -> None:
    assert text([1, None], pa.list_(pa.int64())) == "[1,null]"
    assert text([("k", None), ("l", 2)], pa.map_(pa.string(), pa.int64())) == '{"k":null,"l":2}'


def test_nested_values() -> None:
    kind = pa.struct([("rows", pa.list_(ROW)), ("by", pa.map_(pa.int32(), ROW))])
    assert text({"rows": [{"a": 1, "b": None}], "by": [(7, {"a": 2, "b": "z"})]}, kind) == (
        '{"rows":[{"a":1}],"by":{"7":{"a":2,"b":"z"}}}'
    )


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        ('a"\n\u00fc\u20ac\U0001f600\x01', pa.string(), 'a"\n\u00fc\u20ac\U0001f600\x01'),
        (True, pa.bool_(), True),
        (-(2**63), pa.int64(), -(2**63)),
        (0.1, pa.float64(), 0.1),
        (1e300, pa.float64(), 1e300),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float32(), "-Infinity"),
        (b"\x00\xff", pa.binary(), "AP8="),
        (date(2026, 1, 2), pa.date32(), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_999), pa.timestamp("us"), "2026-01-02T03:04:05.678"),
        (
            datetime(2026, 7, 2, 3, 4, 5, tzinfo=ZoneInfo("Europe/Berlin")),
            pa.timestamp("us", "Europe/Berlin"),
            "2026-07-02T01:04:05.000Z",
        ),
    ],
)
def test_simple_values(value: Any, kind: pa.DataType, found: Any) -> None:
    assert one(value, kind) == found


def test_numbers_are_as_long_as_their_types_need() -> None:
    assert text({"x": 0.1}, pa.struct([("x", pa.float32())])) == '{"x":0.1}'
    assert text({"x": Decimal("1.10")}, pa.struct([("x", pa.decimal128(10, 2))])) == '{"x":1.10}'


def test_a_time_that_python_does_not_know_is_refused() -> None:
    years_too_late = pa.array([400_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(InvalidArgument, match="cannot be written as JSON"):
        json_texts(pa.StructArray.from_arrays([years_too_late], names=["at"]))


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.map_(ROW, pa.int64())])
def test_types_without_json_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidArgument, match="cannot be written as JSON"):
        json_texts(pa.array([], pa.struct([("x", kind)])))


@pytest.mark.parametrize("zone", ["GMT+3", "GMT+03:00", "UTC+3", "PST", "Z", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("nested", "found"),
    [
        (lambda time: pa.list_(time), '["1970-01-01T00:00:01.000Z"]'),
        (lambda time: pa.large_list(time), '["1970-01-01T00:00:01.000Z"]'),
        (lambda time: pa.struct([("a", pa.list_(time))]), '{"a":["1970-01-01T00:00:01.000Z"]}'),
        (lambda time: pa.map_(pa.string(), time), '{"k":"1970-01-01T00:00:01.000Z"}'),
        (lambda time: pa.map_(time, pa.int64()), '{"1970-01-01T00:00:01.000Z":7}'),
    ],
)
def test_times_in_zones_that_only_java_knows(
    zone: str, nested: Callable[[pa.DataType], pa.DataType], found: str
) -> None:
    """A time is a number of microseconds, whatever the zone of the session."""
    numbers = {"{": {"a": [1_000_000]}, "[": [1_000_000]}
    kind = nested(pa.int64())
    value: Any = numbers[found[0]]
    if pa.types.is_map(kind):
        value = [(1_000_000, 7)] if pa.types.is_int64(kind.key_type) else [("k", 1_000_000)]
    assert json_texts(pa.array([value], kind).cast(nested(pa.timestamp("us", zone)))).to_pylist() == [found]


def test_the_other_columns_stay() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array([{"a": 1, "b": None}], ROW)], names=["key", "event"])
    assert with_json(batch, 1).to_pylist() == [{"key": "k", "event": '{"a":1}'}]
