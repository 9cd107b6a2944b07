"""Builds the columns of a read with format=record from the events of a segment."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pravega_common.errors import DataCorruption
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.record_envelope import NotARecord, RecordParts
from pravega_spark.rows.texts import is_utf8


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
        """One of ``RECORD_PARTS`` (``record_schema.py``), of a type that was checked."""
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
