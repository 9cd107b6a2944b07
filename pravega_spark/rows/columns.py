"""Defines the Arrow columns of the source and of the sink, and fills those of the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.invariants import check
from pravega_common.listed import listed
from pravega_common.names import short_segment_name
from pravega_spark.rows.arrays import Int64s, constant_array, number_array
from pravega_spark.rows.record_schema import RECORD_PARTS, check_part
from pravega_spark.rows.texts import is_utf8

if TYPE_CHECKING:
    from pravega_spark.rows.record_rows import RecordRows

SOURCE_SCHEMA: Final = "event binary, scope string, stream string, segment_id bigint, offset bigint"
"""What a read yields unless the user names fewer columns; Spark's DDL."""
RECORD_SOURCE_SCHEMA: Final = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp, "
    "scope string, stream string, segment_id bigint, offset bigint"
)
"""The same of a read of records."""
SOURCE_COLUMNS: Final = {
    "event": (pa.binary(), pa.string()),
    "scope": (pa.string(),),
    "stream": (pa.string(),),
    "segment_id": (pa.int64(),),
    "offset": (pa.int64(),),
    "ingest_time": (pa.timestamp("us", "UTC"),),
}
_SQL_NAMES: Final = {
    pa.binary(): "binary",
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.timestamp("us", "UTC"): "timestamp",
}
INGEST_TIME_COLUMN: Final = "ingest_time timestamp"
"""A column of a read that is there only if asked for: by option ``ingest_time`` or by a schema of the user's."""
EVENT_NAMES: Final = ("event", "value")
EVENT_TYPES: Final = ("string", "binary")
NESTED_KINDS: Final = ("struct<", "array<", "map<")
"""How the SQL types begin whose values a sink writes as JSON (json_texts.py)."""
_NOT_IN_JSON: Final = re.compile(
    r"[<:,](?:interval(?: [a-z ]+)?|variant|udt|time\(\d+\)|geometry\([^)]*\)|geography\([^)]*\))(?=[,>])"
)
"""SQL types within a nested one that have no JSON here; a field may well be called so, and is then followed by a
colon."""
_NESTING: Final = re.compile(r"(struct|array|map)<|\bvoid(?=[,>])|>")
"""What tells of an SQL type within which others the type of nothing but nulls is."""
KEY_NAMES: Final = ("routing_key", "key")
KEY_TYPES: Final = ("string", "binary", "tinyint", "smallint", "int", "bigint")
STREAM_NAMES: Final = ("stream",)
names_listed_max: Final = 5
"""Columns that an error names."""


def check_source_schema(schema: pa.Schema, *, records: bool = False) -> None:
    """Refuse what a read cannot yield: other columns, other types, the same column twice.

    ``records``: the read unpacks records (option ``format``).
    """
    names, columns = list(schema.names), RECORD_SOURCE_SCHEMA if records else SOURCE_SCHEMA
    if not names:
        raise InvalidArgument(f"a schema without columns; name some of: {columns}")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"the schema names a column twice: {', '.join(names)}")
    for field in schema:
        if records and field.name in RECORD_PARTS:
            check_part(field)
            continue
        allowed = None if records and field.name == "event" else SOURCE_COLUMNS.get(field.name)
        if allowed is None:
            other = not records and field.name in RECORD_PARTS
            hint = "; streams of records have it, with option format=record" if other else ""
            every = f"{columns}, {INGEST_TIME_COLUMN}"
            raise InvalidArgument(f"the source has no column '{field.name}'; its columns are: {every}{hint}")
        if field.type not in allowed:
            wanted = " or ".join(_SQL_NAMES[item] for item in allowed)
            raise InvalidArgument(
                f"column '{field.name}' must be {wanted}, not {_SQL_NAMES.get(field.type, field.type)}"
            )


def _no_times(offsets: Int64s) -> Int64s:
    raise InvalidArgument(f"nobody gives the times of {len(offsets)} events")


class RowBuilder:
    """Makes the record batches of one segment, with exactly the columns of ``schema`` (checked before)."""

    def __init__(
        self,
        schema: pa.Schema,
        scope: str,
        stream: str,
        segment_id: int,
        ingest_times: Callable[[Int64s], Int64s] = _no_times,
    ) -> None:
        """``ingest_times``: microseconds since 1970 for the offsets of events; only for a schema with that column."""
        self._schema = schema
        self._stream_name = f"{scope}/{stream}"
        self._name = short_segment_name(segment_id)
        self._constants: dict[str, str | int] = {"scope": scope, "stream": stream, "segment_id": segment_id}
        self._ingest_times = ingest_times
        self._cached: dict[str, pa.Array] = {}
        self.needs_events = "event" in schema.names

    def build(self, events: Callable[[], pa.Array], offsets: Callable[[], Int64s], count: int) -> pa.RecordBatch:
        """One batch of ``count`` rows; ``events`` and ``offsets`` are called only if their column is wanted."""
        columns: list[pa.Array] = []
        records: RecordRows | None = None
        for field in self._schema:
            if field.name in RECORD_PARTS:
                records = records or self._records(events(), offsets)
                columns.append(records.column(field))
            elif field.name == "event":
                columns.append(self._event_column(events(), field.type, offsets))
            elif field.name == "offset":
                columns.append(number_array(offsets(), pa.int64()))
            elif field.name == "ingest_time":
                columns.append(number_array(self._ingest_times(offsets()), pa.int64()).view(field.type))
            else:
                columns.append(self._constant(field.name, field.type, count))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _records(self, events: pa.Array, offsets: Callable[[], Int64s]) -> RecordRows:
        from pravega_spark.rows.record_rows import RecordRows  # Plain events need nothing of it.

        return RecordRows(events, offsets, f"segment {self._name} of {self._stream_name}")

    def _constant(self, name: str, kind: pa.DataType, count: int) -> pa.Array:
        cached = self._cached.get(name)
        if cached is None or len(cached) < count:
            cached = constant_array(self._constants[name], kind, count)
            self._cached[name] = cached
        return cached.slice(0, count)

    def _event_column(self, events: pa.Array, kind: pa.DataType, offsets: Callable[[], Int64s]) -> pa.Array:
        if kind == pa.binary():
            return events
        try:
            return events.cast(kind)
        except pa.ArrowInvalid as error:
            index = next(index for index, event in enumerate(events.to_pylist()) if not is_utf8(event))
            raise DataCorruption(
                f"the event at offset {offsets()[index]} of segment {self._name} of {self._stream_name} is not "
                "UTF-8; read column 'event' as binary"
            ) from error


# ---- sink ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The positions of the sink's columns in the rows to write.

    No ``key``: rows have no routing key. No ``stream``: all rows go to one stream.
    """

    event: int
    key: int | None
    stream: int | None = None

    def events_of(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.event)

    def keys_of(self, batch: pa.RecordBatch) -> pa.Array | None:
        return None if self.key is None else batch.column(self.key)

    def streams_of(self, batch: pa.RecordBatch) -> pa.Array:
        check(self.stream is not None, "no column names the streams of the rows")
        return batch.column(self.stream)


def sink_columns(
    fields: Sequence[tuple[str, str]], *, with_stream: bool = False, aside: str | None = None
) -> SinkColumns:
    """Find the sink's columns among (name, SQL type) pairs, in any case of letters.

    Those that a read adds (where a row was) are left out, and one that has another use (``aside``); ``with_stream``: a
    column ``stream`` says where its row goes.
    ``InvalidArgument`` when there is no event, when one column is there under two names, for another type, and for
    columns that would be lost.
    """
    event = find_column(fields, EVENT_NAMES, EVENT_TYPES, or_nested=True)
    if event is None:
        names = ", ".join(name for name, _ in fields) or "none"
        raise InvalidArgument(
            f"required attribute 'event' not found among the columns to write ({names}); name one 'event' or 'value'"
        )
    stream = find_column(fields, STREAM_NAMES, ("string",)) if with_stream else None
    made = SinkColumns(event, find_column(fields, KEY_NAMES, KEY_TYPES), stream)
    check_none_is_lost(
        fields,
        {*EVENT_NAMES, *KEY_NAMES, *SOURCE_COLUMNS, (aside or "event").lower()},
        "a sink writes 'event' (or 'value') and 'routing_key' (or 'key') alone; drop them, or put them into the event: "
        "to_json(struct(*)) AS event",
    )
    return made


def check_none_is_lost(fields: Sequence[tuple[str, str]], known: Collection[str], why: str) -> None:
    """``InvalidArgument`` for columns that are not ``known`` (names in lower case); ``why`` ends its sentence."""
    others = [f"'{name}'" for name, _ in fields if name.lower() not in known]
    if others:
        raise InvalidArgument(f"columns {listed(others, names_listed_max)} would be lost: {why}")


def can_be_json(kind: str) -> bool:
    """Whether values of an SQL type are nested and can be written as JSON."""
    return kind.startswith(NESTED_KINDS) and _NOT_IN_JSON.search(kind) is None and not _has_void_items(kind)


def _has_void_items(kind: str) -> bool:
    """Whether arrays or maps of an SQL type have nulls for their only values, as ``array(NULL)`` and ``map()``.

    Spark hands such a column over as one that ends too early, or crashes Arrow in its own process.
    """
    around: list[str] = []
    for found in _NESTING.finditer(kind):
        if found[1]:
            around.append(found[1])
        elif found[0] == "void":
            if "array" in around or "map" in around:
                return True
        elif around:
            around.pop()
    return False


def find_column(
    fields: Sequence[tuple[str, str]], names: Sequence[str], types: Sequence[str], *, or_nested: bool = False
) -> int | None:
    """Find the position of the column with one of these names; no position if there is no such column.

    ``InvalidArgument`` for two of them, and for another type; ``or_nested``: a nested one may be written as JSON.
    """
    found = [index for index, (name, _) in enumerate(fields) if name.lower() in names]
    if not found:
        return None
    if len(found) > 1:
        listed = " and ".join(f"'{fields[index][0]}'" for index in found)
        raise InvalidArgument(f"columns {listed} mean the same to the sink; keep one of them")
    name, kind = fields[found[0]]
    if kind not in types and not (or_nested and can_be_json(kind)):
        remedy = f"write to_json({name}) AS {name}" if kind.startswith(NESTED_KINDS) and or_nested else "cast it"
        raise InvalidArgument(
            f"{names[0]} attribute type must be a {' or '.join(types)}, but column '{name}' is {kind}; {remedy}"
        )
    return found[0]
