"""Writes nested values as JSON, as Spark's ``to_json`` does by itself, with times in UTC.

Fields of a struct that are null are left out; nulls in arrays and maps stay. Binary values are Base64; NaN and the
infinities are texts; dates and times are in the form of ISO 8601, times with milliseconds. So are the keys of a map,
which ``to_json`` writes as Spark holds them: a date as the number of its day.
"""

from __future__ import annotations

import base64
import json.encoder
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pravega_common.errors import InvalidArgument

Writer = Callable[[Any], str]

_text: Final[Writer] = json.encoder.encode_basestring


def with_json(batch: pa.RecordBatch, index: int) -> pa.RecordBatch:
    """The same rows, whose column ``index`` is JSON; raises as ``json_texts``."""
    columns = list(batch.columns)
    columns[index] = json_texts(columns[index])
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def json_texts(values: pa.Array) -> pa.Array:
    """One JSON text for each value, null for null. ``InvalidArgument`` for a time outside of the years 1 to 9999."""
    write = _writer_of(values.type)
    try:
        found = values.cast(_in_utc(values.type)).to_pylist()
        return pa.array([None if value is None else write(value) for value in found], pa.string())
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"a value of the event cannot be written as JSON: {error}") from error


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The type with all times in UTC, where they are the same numbers: Spark allows session time zones that Python does
    not know (``GMT+3``, ``PST``)."""
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_in_utc(item.type)) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_in_utc(kind.key_type)), kind.item_field.with_type(_in_utc(kind.item_type))
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_utc(kind.value_type)))
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _writer_of(kind: pa.DataType) -> Writer:
    """Find how values of an Arrow type are written."""
    if pa.types.is_struct(kind):
        return _struct_writer(kind)
    if pa.types.is_map(kind):
        return _map_writer(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_writer(kind)
    for is_kind, write in _SIMPLE:
        if is_kind(kind):
            return write
    raise InvalidArgument(f"a value of type {kind} cannot be written as JSON; write to_json(…) or cast it")


def _struct_writer(kind: pa.StructType) -> Writer:
    fields = [(item.name, _text(item.name) + ":", _writer_of(item.type)) for item in kind]

    def write(value: dict[str, Any]) -> str:
        parts = (name + write_one(found) for key, name, write_one in fields if (found := value[key]) is not None)
        return "{" + ",".join(parts) + "}"

    return write


def _map_writer(kind: pa.MapType) -> Writer:
    write_key, write_item = _key_writer(kind.key_type), _or_null(_writer_of(kind.item_type))

    def write(value: list[tuple[Any, Any]]) -> str:
        return "{" + ",".join(f"{write_key(key)}:{write_item(item)}" for key, item in value) + "}"

    return write


def _key_writer(kind: pa.DataType) -> Writer:
    """Keys of an object are texts, whatever they were."""
    write = _writer_of(kind)
    if pa.types.is_nested(kind):
        raise InvalidArgument(f"a map with keys of type {kind} cannot be written as JSON; its keys must be simple")
    return lambda value: made if (made := write(value)).startswith('"') else f'"{made}"'


def _list_writer(kind: pa.ListType) -> Writer:
    write_one = _or_null(_writer_of(kind.value_type))
    return lambda value: "[" + ",".join(map(write_one, value)) + "]"


def _or_null(write: Writer) -> Writer:
    return lambda value: "null" if value is None else write(value)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _double(value: float) -> str:
    return repr(value) if math.isfinite(value) else _no_number(value)


def _single(value: float) -> str:
    """As short as the type tells values apart: 0.1 and not 0.10000000149011612."""
    return str(np.float32(value)) if math.isfinite(value) else _no_number(value)


def _no_number(value: float) -> str:
    return '"NaN"' if math.isnan(value) else f'"{"" if value > 0 else "-"}Infinity"'


def _decimal(value: Decimal) -> str:
    return str(value)


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _date(value: date) -> str:
    return f'"{value.isoformat()}"'


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        return f'"{value.isoformat(timespec="milliseconds")}"'
    return f'"{value.replace(tzinfo=None).isoformat(timespec="milliseconds")}Z"'


_SIMPLE: Final[tuple[tuple[Callable[[pa.DataType], bool], Writer], ...]] = (
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, str),
    (pa.types.is_float64, _double),
    (pa.types.is_float32, _single),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _time),
    (pa.types.is_null, lambda _: "null"),
)
