"""Finds the columns of a write with format=record, and packs its rows into events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pravega_common.errors import InvalidArgument
from pravega_spark.rows.columns import (
    EVENT_TYPES,
    KEY_TYPES,
    SOURCE_COLUMNS,
    STREAM_NAMES,
    SinkColumns,
    check_none_is_lost,
    find_column,
)
from pravega_spark.rows.record_schema import RECORD_PARTS

_HEADERS_TYPES: Final = ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The positions of a record's columns in the rows to write; a part without a column is null."""

    value: int
    key: int | None = None
    headers: int | None = None
    timestamp: int | None = None
    stream: int | None = None

    @property
    def event(self) -> int:
        """The position of what may be nested, as ``SinkColumns.event``."""
        return self.value

    @property
    def packed(self) -> SinkColumns:
        """The columns of what ``pack`` makes."""
        return SinkColumns(0, None if self.key is None else 1, None if self.stream is None else 2)

    def pack(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as events, with their routing keys and streams; raises as ``pack_records``."""

        def column(index: int | None) -> pa.Array | None:
            return None if index is None else batch.column(index)

        keys, streams = column(self.key), column(self.stream)
        from pravega_spark.rows.record_envelope import pack_records  # Nothing of it is needed to plan.

        events = pack_records(batch.column(self.value), keys, column(self.headers), column(self.timestamp))
        absent = pa.nulls(batch.num_rows)
        columns = [events, absent if keys is None else keys, absent if streams is None else streams]
        return pa.RecordBatch.from_arrays(columns, names=["event", "routing_key", "stream"])


WrittenColumns = SinkColumns | RecordColumns
"""The columns of a sink, as its option ``format`` says."""


def record_columns(
    fields: Sequence[tuple[str, str]], *, with_stream: bool = False, aside: str | None = None
) -> RecordColumns:
    """Find a record's columns among (name, SQL type) pairs, in any case of letters; the rest as ``sink_columns``."""
    value = find_column(fields, ("value",), EVENT_TYPES, or_nested=True)
    if value is None:
        names = ", ".join(name for name, _ in fields) or "none"
        raise InvalidArgument(
            f"with format=record a sink needs a column 'value', and has {names}; a record without a value has null "
            "there (a tombstone)"
        )
    made = RecordColumns(
        value,
        find_column(fields, ("key",), KEY_TYPES),
        find_column(fields, ("headers",), _HEADERS_TYPES),
        find_column(fields, ("timestamp",), ("timestamp",)),
        find_column(fields, STREAM_NAMES, ("string",)) if with_stream else None,
    )
    check_none_is_lost(
        fields,
        ({*RECORD_PARTS, *SOURCE_COLUMNS} - {"event"}) | {(aside or "value").lower()},
        "with format=record a sink writes 'key', 'value', 'headers' and 'timestamp', and routes by 'key'; drop the "
        "others, or put them into the value",
    )
    return made
