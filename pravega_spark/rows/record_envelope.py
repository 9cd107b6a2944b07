"""Packs records (key, value, headers, timestamp) into events, and unpacks them, whole columns at a time.

The envelope is described byte by byte in docs/records.md. An event of another form is refused by its index in the
column, never guessed at. No Python code runs per record or header.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pravega_common.arrow_numbers import Flags, bits_of, numbers_of, valid_of
from pravega_common.errors import InvalidArgument
from pravega_spark.rows.arrays import Int64s, empty_value, number_array
from pravega_spark.rows.keys import key_texts
from pravega_spark.rows.texts import is_utf8

RECORD_MAGIC: Final = 0xE7
RECORD_VERSION: Final = 2
FUNCTION_VERSION: Final = 1
"""Written by ``pravega_spark.functions.to_envelope``; its headers are JSON."""
record_head_bytes: Final = 19

_KEY, _VALUE, _HEADERS, _TIMESTAMP = 1, 2, 4, 8
_HEAD: Final = np.dtype(
    [
        ("magic", "u1"),
        ("version", "u1"),
        ("present", "u1"),
        ("timestamp", ">i8"),
        ("key_bytes", ">u4"),
        ("headers_bytes", ">u4"),
    ]
)
_PAIR: Final = np.dtype([("name_bytes", ">u4"), ("value_bytes", ">i4")])
_count_bytes: Final = 4
_null_value: Final = -1
_shown_bytes: Final = 16
"""Bytes of an event that is no record that an error shows."""

_BYTES: Final = pa.large_binary()
_NOTHING: Final = empty_value(_BYTES)


# ---- writing ---------------------------------------------------------------------------------------------------------


def pack_records(
    values: pa.Array, keys: pa.Array | None = None, headers: pa.Array | None = None, timestamps: pa.Array | None = None
) -> pa.Array:
    """Returns one event (large binary, never null) for each record; a column that is None is null throughout.

    ``values``, ``keys``: binary or string; keys may be integers, which are written in decimal. ``headers``: list of
    structs of a name and a value. ``timestamps``: of any zone, kept to the microsecond. Nulls stay null, and differ
    from empty values. ``InvalidArgument`` for a header without a name.
    """
    count = len(values)
    key_bytes = _as_bytes(keys, count)
    value_bytes = _as_bytes(values, count)
    header_bytes = pa.nulls(count, _BYTES) if headers is None else _packed_headers(headers)
    times = pa.nulls(count, pa.int64()) if timestamps is None else _micros(timestamps)
    heads: npt.NDArray[Any] = np.zeros(count, dtype=_HEAD)
    heads["magic"], heads["version"] = RECORD_MAGIC, RECORD_VERSION
    for column, bit in ((key_bytes, _KEY), (value_bytes, _VALUE), (header_bytes, _HEADERS), (times, _TIMESTAMP)):
        heads["present"] |= np.where(valid_of(column), np.uint8(bit), np.uint8(0))
    heads["timestamp"] = _numbers(times)
    heads["key_bytes"] = _numbers(pc.binary_length(key_bytes))
    heads["headers_bytes"] = _numbers(pc.binary_length(header_bytes))
    return _joined(_cut(np.arange(count + 1) * record_head_bytes, heads), key_bytes, header_bytes, value_bytes)


def _packed_headers(headers: pa.Array) -> pa.Array:
    """The section of the headers of each record: count, lengths, then names and values; null for null headers."""
    counts = _numbers(pc.list_value_length(headers))
    firsts = _sums(counts)
    entries = headers.flatten()
    names, values = entries.flatten()
    if names.null_count:
        raise InvalidArgument(f"{names.null_count} of {len(names)} headers have no name; give each one, or drop them")
    names, values = names.cast(_BYTES), values.cast(_BYTES)
    lengths: npt.NDArray[Any] = np.empty(len(names), dtype=_PAIR)
    lengths["name_bytes"] = _numbers(pc.binary_length(names))
    lengths["value_bytes"] = np.where(valid_of(values), _numbers(pc.binary_length(values)), _null_value)
    texts = _joined(names, values)
    section = _joined(
        _cut(np.arange(len(counts) + 1) * _count_bytes, counts.astype(">u4")),
        _cut(firsts * _PAIR.itemsize, lengths),
        _cut(_offsets(texts)[firsts], texts.buffers()[2]),
    )
    return pc.if_else(pc.is_valid(headers), section, pa.nulls(1, _BYTES)[0])


def _as_bytes(column: pa.Array | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, _BYTES)
    return (key_texts(column) if pa.types.is_integer(column.type) else column).cast(_BYTES)


def _micros(timestamps: pa.Array) -> pa.Array:
    return timestamps.cast(pa.timestamp("us", timestamps.type.tz)).cast(pa.int64())


def _joined(*columns: pa.Array) -> pa.Array:
    """The bytes of the columns one behind the other, row by row; a null counts as nothing."""
    return pc.binary_join_element_wise(*(pc.fill_null(column, _NOTHING) for column in columns), _NOTHING)


def _cut(borders: Int64s, data: Any) -> pa.Array:
    """Bytes as a column: value ``i`` is what lies between borders ``i`` and ``i + 1``."""
    buffers: list[Any] = [None, pa.py_buffer(borders), pa.py_buffer(b"" if data is None else data)]
    return pa.Array.from_buffers(_BYTES, len(borders) - 1, buffers)


def _offsets(column: pa.Array) -> Int64s:
    return np.frombuffer(column.buffers()[1], dtype=np.int64, count=len(column) + 1, offset=column.offset * 8)


def _numbers(column: pa.Array) -> Int64s:
    """Nulls are 0."""
    return np.where(valid_of(column), numbers_of(column), 0).astype(np.int64)


def _sums(counts: Int64s) -> Int64s:
    """The sum of the counts before each place, and of all of them at the end."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


# ---- reading ---------------------------------------------------------------------------------------------------------


class NotARecord(Exception):
    """The event at ``index`` of a column is no record that this version reads; ``why`` says it, with the way out."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"event {index} is no record: {why}")
        self.index = index
        self.why = why


class RecordParts:
    """The parts of a column of records. Each is a column with as many rows, made when it is asked for."""

    def __init__(self, events: pa.Array) -> None:
        """``events``: a binary array without nulls. ``NotARecord`` for the first that has another head or length."""
        _, offsets, data = events.buffers()
        borders = np.frombuffer(offsets, dtype=np.int32, count=len(events) + 1, offset=events.offset * 4)
        self._buffer = pa.py_buffer(b"") if data is None else data
        self._data: npt.NDArray[np.uint8] = np.frombuffer(self._buffer, dtype=np.uint8)
        self._starts = borders[:-1].astype(np.int64)
        self._ends = borders[1:].astype(np.int64)
        self._refuse(self._ends - self._starts < record_head_bytes, f"it has less than {record_head_bytes} bytes")
        self._heads = self._structs(self._starts, _HEAD)
        self._check_kind()
        self._headers_at = self._starts + record_head_bytes + self._heads["key_bytes"]
        self._values_at = self._headers_at + self._heads["headers_bytes"]
        self._check_lengths()

    def keys(self) -> pa.Array:
        return self._piece(1, _KEY)

    def values(self) -> pa.Array:
        return self._piece(3, _VALUE)

    def timestamps(self, kind: pa.DataType) -> pa.Array:
        """``kind``: a timestamp in microseconds."""
        micros = self._heads["timestamp"].astype(np.int64)
        return number_array(micros, pa.int64(), self._has(_TIMESTAMP)).cast(kind)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """``kind``: list of structs of a string and a binary. ``NotARecord`` for headers that are damaged."""
        has = self._has(_HEADERS)
        rows = np.flatnonzero(has)
        counts = self._header_counts(rows)
        firsts = _sums(counts)
        within = np.arange(int(firsts[-1])) - np.repeat(firsts[:-1], counts)
        tables = self._headers_at[rows] + _count_bytes
        lengths = self._structs(np.repeat(tables, counts) + within * _PAIR.itemsize, _PAIR)
        name_bytes, value_bytes = lengths["name_bytes"].astype(np.int64), lengths["value_bytes"].astype(np.int64)
        held = _sums(name_bytes + np.maximum(value_bytes, 0))
        texts = tables + counts * _PAIR.itemsize
        wrong = self._absent()
        wrong[rows] = texts + (held[firsts[1:]] - held[firsts[:-1]]) != self._values_at[rows]
        wrong[np.repeat(rows, counts)[value_bytes < _null_value]] = True
        self._refuse(wrong, "the lengths of its headers do not add up")
        names_at = np.repeat(texts - held[firsts[:-1]], counts) + held[:-1]
        borders = np.empty(3 * len(names_at) + 1, dtype=np.int32)  # Name, value, what lies before the next name, …
        borders[0:-1:3], borders[1::3], borders[-1] = names_at, names_at + name_bytes, len(self._data)
        borders[2::3] = borders[1::3] + np.maximum(value_bytes, 0)
        names = self._texts(_taken(self._buffer, borders, np.arange(len(names_at)) * 3), np.repeat(rows, counts))
        values = _taken(self._buffer, borders, np.arange(len(names_at)) * 3 + 1, value_bytes == _null_value)
        entries = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        counts_of_all = np.zeros(len(has), dtype=np.int64)
        counts_of_all[rows] = counts
        places = _sums(counts_of_all).astype(np.int32)
        buffers: list[Any] = [bits_of(has), pa.py_buffer(places)]
        return pa.Array.from_buffers(kind, len(has), buffers, children=[entries])

    def _header_counts(self, rows: Int64s) -> Int64s:
        room = self._values_at[rows] - self._headers_at[rows] - _count_bytes
        wrong = self._absent()
        wrong[rows] = room < 0
        self._refuse(wrong, "its headers are cut short")
        counts: Int64s = self._structs(self._headers_at[rows], np.dtype([("n", ">u4")]))["n"].astype(np.int64)
        wrong[rows] = counts * _PAIR.itemsize > room
        self._refuse(wrong, "its headers are cut short")
        return counts

    def _texts(self, names: pa.Array, rows: Int64s) -> pa.Array:
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid as error:
            bad = next(row for row, name in zip(rows.tolist(), names.to_pylist(), strict=True) if not is_utf8(name))
            raise NotARecord(bad, "the name of a header is not UTF-8") from error

    def _piece(self, which: int, bit: int) -> pa.Array:
        borders = np.empty(4 * len(self._starts) + 1, dtype=np.int32)  # Head, key, headers, value, head, …
        borders[0:-1:4], borders[1::4] = self._starts, self._starts + record_head_bytes
        borders[2::4], borders[3::4] = self._headers_at, self._values_at
        borders[-1] = self._ends[-1] if len(self._ends) else 0
        return _taken(self._buffer, borders, np.arange(len(self._starts)) * 4 + which, ~self._has(bit))

    # Checks

    def _check_kind(self) -> None:
        alien = self._heads["magic"] != RECORD_MAGIC
        if alien.any():
            index = int(alien.argmax())
            start = self._starts[index]
            shown = self._data[start : min(start + _shown_bytes, self._ends[index])].tobytes().hex().upper()
            why = f"it begins with 0x{shown}, not with 0x{RECORD_MAGIC:02X}; leave option 'format' out to read events"
            raise NotARecord(index, why)
        other = self._heads["version"] != RECORD_VERSION
        if other.any():
            index = int(other.argmax())
            version = int(self._heads["version"][index])
            way_out = "use the pravega-spark that wrote it, or newer"
            if version == FUNCTION_VERSION:
                way_out = "leave option 'format' out, and open it with pravega_spark.functions.from_envelope"
            raise NotARecord(index, f"its version is {version}, and this one reads {RECORD_VERSION}; {way_out}")

    def _check_lengths(self) -> None:
        heads, sizes = self._heads, self._ends - self._values_at
        self._refuse(heads["present"] >= 2 * _TIMESTAMP, "its flags have bits that mean nothing")
        self._refuse(sizes < 0, "its lengths are more than it has bytes")
        for held, bit in (
            (heads["key_bytes"] > 0, _KEY),
            (sizes > 0, _VALUE),
            (heads["headers_bytes"] > 0, _HEADERS),
            (heads["timestamp"] != 0, _TIMESTAMP),
        ):
            self._refuse(held & ~self._has(bit), "a part that its flags call null has bytes")

    def _refuse(self, wrong: Flags, why: str) -> None:
        if wrong.any():
            raise NotARecord(int(wrong.argmax()), f"{why}; it is damaged, or was never a record")

    def _has(self, bit: int) -> Flags:
        found: Flags = (self._heads["present"] & bit) != 0
        return found

    def _absent(self) -> Flags:
        return np.zeros(len(self._starts), dtype=np.bool_)

    def _structs(self, places: Int64s, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The numbers at each place of the data; all of them lie within it."""
        if not len(places):
            return np.empty(0, dtype=kind)
        windows = np.lib.stride_tricks.sliding_window_view(self._data, kind.itemsize)
        return np.ascontiguousarray(windows[places]).view(kind)[:, 0]


def _taken(data: pa.Buffer, borders: npt.NDArray[np.int32], which: Int64s, is_null: Flags | None = None) -> pa.Array:
    """Some of the pieces between the borders, copied; null where ``is_null``."""
    buffers: list[Any] = [None, pa.py_buffer(borders), data]
    indexes = number_array(which, pa.int64(), None if is_null is None else ~is_null)
    return pa.Array.from_buffers(pa.binary(), len(borders) - 1, buffers).take(indexes)
