"""Builds the columns of a read with format=record from the events of a segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_spark.rows.framing import Int64s
from pravega_spark.rows.keys import is_utf8
from pravega_spark.rows.record_envelope import NotARecord, RecordParts

RECORD_PARTS: Final = {
    "key": "binary or string",
    "value": "binary or string",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp",
}
"""The columns that come out of a record, and the SQL types that each may have."""


def check_part(field: pa.Field) -> None:
    """``InvalidArgument`` for a column of a record that is wanted as another type."""
    kind = field.type
    match field.name:
        case "key" | "value":
            fits = kind in (pa.binary(), pa.string())
        case "headers":
            fits = pa.types.is_list(kind) and _is_header(kind.value_type)
        case _:
            fits = pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None
    if not fits:
        raise InvalidArgument(f"column '{field.name}' must be {RECORD_PARTS[field.name]}, not {kind}")


def _is_header(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [(item.name, item.type) for item in kind] == [
        ("key", pa.string()),
        ("value", pa.binary()),
    ]


class RecordRows:
    """The records of one record batch to be; ``DataCorruption`` names the place of an event that is no record."""

    def __init__(self, events: pa.Array, offsets: Callable[[], Int64s], segment: str) -> None:
        """``offsets`` are those of the events in ``segment``, which is its name for errors."""
        self._offsets = offsets
        self._segment = segment
        try:
            self._parts = RecordParts(events)
        except NotARecord as error:
            raise self._damage(error.index, f"is no record: {error.why}") from error

    def column(self, field: pa.Field) -> pa.Array:
        """One of ``RECORD_PARTS``, of a type that was checked."""
        match field.name:
            case "key":
                made = self._of_type(self._parts.keys(), field)
            case "value":
                made = self._of_type(self._parts.values(), field)
            case "headers":
                made = self._headers(field.type)
            case _:
                made = self._parts.timestamps(field.type)
        if made.null_count and not field.nullable:
            index = made.is_null().index(True).as_py()
            raise self._damage(index, f"has no {field.name}, which the schema says is never null; make it nullable")
        return made

    def _headers(self, kind: pa.DataType) -> pa.Array:
        try:
            return self._parts.headers(kind)
        except NotARecord as error:
            raise self._damage(error.index, f"is no record: {error.why}") from error

    def _of_type(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            texts = enumerate(column.to_pylist())
            index = next(index for index, text in texts if text is not None and not is_utf8(text))
            raise self._damage(
                index, f"has a {field.name} that is not UTF-8; read column '{field.name}' as binary"
            ) from error

    def _damage(self, index: int, what: str) -> DataCorruption:
        return DataCorruption(f"the event at offset {self._offsets()[index]} of {self._segment} {what}")
