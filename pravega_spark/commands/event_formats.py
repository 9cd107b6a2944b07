"""Parses and prints events in a pipe: lines, length-prefixed, or one JSON object a line. No I/O.

====== =============================================================================================================
lines  an event is a line without its newline (a carriage return stays)
length an event is a 32-bit big-endian length and that number of bytes
json   a line is ``{"event": text or any JSON value}`` or ``{"event_base64": …}``, with an optional ``"key"``;
       reading gives ``segment`` and ``offset`` too. A line that is another JSON object is an event as it is.
====== =============================================================================================================
"""

from __future__ import annotations

import base64
import binascii
import enum
import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from pravega_common.arrow_numbers import numbers_of
from pravega_common.errors import InvalidArgument
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import event_bytes_max
from pravega_spark.rows.texts import is_utf8

_LENGTH: Final = struct.Struct(">I")
_WRAPPED: Final = frozenset({"event", "event_base64", "key", "segment", "offset"})
"""The members of a line that holds an event, and is not one itself."""
line_bytes_max: Final = 6 * event_bytes_max + 1024 * 1024
"""Largest line that holds an event: a control character takes six bytes in JSON, and the rest is for the other members.
Whether the event in it is too large is known when the line is whole, and its writer says so."""
SINK_SCHEMA: Final = pa.schema([("event", pa.binary()), ("routing_key", pa.string())])


class Format(enum.StrEnum):
    LINES = "lines"
    LENGTH = "length"
    JSON = "json"


# ---- into the stream -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Parser:
    """A parser of chunks into record batches of ``SINK_SCHEMA``.

    ``key_field`` is the member of a JSON event that is its routing key; one that is ``null`` is no key.
    ``InvalidArgument`` names the number of the event (from 1) that is wrong.
    """

    format: Format
    key_field: str = ""
    key: str | None = None
    events_seen: int = 0
    _held: bytes = b""

    def feed(self, chunk: bytes) -> pa.RecordBatch:
        """Returns the events that are complete by now, maybe none."""
        data = self._held + chunk
        if self.format is Format.LENGTH:
            events, used = _split_lengths(data, self.events_seen)
        else:
            used = data.rfind(b"\n") + 1
            events = data[: used - 1].split(b"\n") if used else []
        self._held = data[used:]
        self._check_held(self.events_seen + len(events) + 1)
        return self._batch(events)

    def _check_held(self, number: int) -> None:
        """An event without an end must not fill the memory."""
        if self.format is Format.JSON and len(self._held) > line_bytes_max:
            raise InvalidArgument(f"the line of event {number} is larger than {line_bytes_max} bytes")
        if self.format is not Format.JSON and len(self._held) > event_bytes_max + _LENGTH.size:
            raise InvalidArgument(f"event {number} is larger than {event_bytes_max} bytes")

    def end(self) -> pa.RecordBatch:
        """Returns the rest: a last line without a newline is an event."""
        rest, self._held = self._held, b""
        if rest and self.format is Format.LENGTH:
            raise InvalidArgument(f"the input ends in the middle of event {self.events_seen + 1}")
        return self._batch([rest] if rest else [])

    def _batch(self, lines: list[bytes]) -> pa.RecordBatch:
        keys: Any
        if self.format is Format.JSON:
            made = [self._json_event(line, self.events_seen + 1 + index) for index, line in enumerate(lines)]
            events = pa.array([event for event, _ in made], pa.binary())
            keys = pa.array([key for _, key in made], pa.string())
        else:
            events = pa.array(lines, pa.binary())
            keys = self._keys(lines)
        self.events_seen += len(lines)
        return pa.RecordBatch.from_arrays([events, keys], schema=SINK_SCHEMA)

    def _keys(self, lines: list[bytes]) -> pa.Array:
        if not self.key_field:
            return pa.repeat(pa.scalar(self.key, pa.string()), len(lines))
        fast = _column_of(lines, self.key_field)
        # Arrow has the same for a member that is null and one that is missing.
        if fast is not None and not fast.null_count:
            return fast
        return pa.array([self._key_in(line, self.events_seen + 1 + index) for index, line in enumerate(lines)])

    def _key_in(self, line: bytes, number: int) -> str | None:
        value = _json_object(line, number)
        for name in self.key_field.split("."):
            if not isinstance(value, dict) or name not in value:
                raise InvalidArgument(
                    f"event {number} has no member '{self.key_field}' for its routing key (--key-field); without a key "
                    "it would lose its place among the events of its key"
                )
            value = value[name]
        return _as_text(value, number)

    def _json_event(self, line: bytes, number: int) -> tuple[bytes, str | None]:
        made = _json_object(line, number)
        if not made.keys() & {"event", "event_base64"} or made.keys() - _WRAPPED:
            return line, self._key_in(line, number) if self.key_field else self.key
        event = _unwrapped(made, line, number)
        if self.key is not None:
            return event, self.key
        if self.key_field and self.key_field not in made:
            return event, self._key_in(event, number)
        return event, _as_text(made.get(self.key_field or "key"), number)


def _unwrapped(made: dict[str, Any], line: bytes, number: int) -> bytes:
    """The event in a line as ``event read --json`` writes them."""
    if "event_base64" not in made:
        if not isinstance(made["event"], str):
            json.loads(line, parse_float=lambda text: _check_exact(text, number))
        return _as_json_text(made["event"], number).encode()
    if "event" in made:
        raise InvalidArgument(f"event {number} has both members, event and event_base64: {line[:60]!r}")
    try:
        return base64.b64decode(made["event_base64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidArgument(f"member event_base64 of event {number} is no Base64: {error}") from error


def _check_exact(text: str, number: int) -> None:
    """``InvalidArgument`` for a number of a JSON value that is another one when the value is written again."""
    value = float(text)
    # One whose exponent is too large for Decimal is NaN, and so equals nothing.
    if not math.isfinite(value) or Decimal(text, Context(traps=[])) != Decimal(repr(value)):
        raise InvalidArgument(
            f"number {text} of event {number} would become {value}; write the event as a text, with quotes "
            "escaped, or as event_base64"
        )


def _split_lengths(data: bytes, seen: int) -> tuple[list[bytes], int]:
    events: list[bytes] = []
    position = 0
    while len(data) - position >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data, position)
        if length > event_bytes_max:
            raise InvalidArgument(
                f"event {seen + len(events) + 1} has a length of {length} bytes, more than {event_bytes_max}; "
                "is the input really length-prefixed (32 bits, big-endian)?"
            )
        end = position + _LENGTH.size + length
        if end > len(data):
            break
        events.append(data[position + _LENGTH.size : end])
        position = end
    return events, position


def _column_of(lines: list[bytes], name: str) -> pa.Array | None:
    """Reads a text member of every line with Arrow (ten times faster); None where that would read it differently."""
    if not lines or "." in name:
        return None
    data = b"\n".join(lines)
    if not _are_like_objects(lines, data) or not is_utf8(data):
        return None  # Arrow looks at neither.
    schema = pa.schema([(name, pa.string())])
    try:
        table = arrow_json.read_json(
            io.BytesIO(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table.column(name).combine_chunks().cast(pa.string()) if table.num_rows == len(lines) else None


def _are_like_objects(lines: list[bytes], data: bytes) -> bool:
    """Whether all lines, joined in ``data``, begin and end as objects do.

    Arrow reads objects wherever they begin and end, so it may find one too many in a line and none in a blank one.
    Between two lines of this kind an object must end, so as many objects as lines are one in each.
    """
    if data.startswith(b"{") and data.endswith(b"}") and data.count(b"}\n{") == len(lines) - 1:
        return True
    return all(line[:1] == b"{" and line[-1:] == b"}" for line in map(bytes.strip, lines))


def _json_object(line: bytes, number: int) -> Any:
    try:
        made = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"event {number} is no JSON: {line[:60]!r} ({error})") from error
    if not isinstance(made, dict):
        raise InvalidArgument(f"event {number} is no JSON object: {line[:60]!r}")
    return made


def _as_text(value: Any, number: int) -> str | None:
    return None if value is None else _as_json_text(value, number)


def _as_json_text(value: Any, number: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can write half of a surrogate pair, UTF-8 cannot.
        raise InvalidArgument(f"event {number} holds a text that is not Unicode: {error}") from error
    return text


# ---- out of the stream -----------------------------------------------------------------------------------------------

Printer = Callable[[pa.Array, Int64s, int], bytes | memoryview]
"""Events, their offsets and the number of their segment, as the bytes to write."""


def printer_of(wanted: Format) -> Printer:
    return {Format.LINES: _as_lines, Format.LENGTH: _with_lengths, Format.JSON: _as_json}[wanted]


def _as_lines(events: pa.Array, offsets: Int64s, segment_id: int) -> bytes | memoryview:
    return _joined([events, pa.repeat(pa.scalar(b"\n", pa.binary()), len(events))])


def _with_lengths(events: pa.Array, offsets: Int64s, segment_id: int) -> bytes | memoryview:
    lengths = numbers_of(pc.binary_length(events)).astype(">u4")
    ends = np.arange(len(events) + 1, dtype=np.int32) * _LENGTH.size
    heads = pa.Array.from_buffers(pa.binary(), len(events), [None, pa.py_buffer(ends), pa.py_buffer(lengths)])
    return _joined([heads, events])


def _joined(columns: Sequence[pa.Array]) -> memoryview:
    """Joins the columns' values, row by row."""
    joined = pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))
    _, ends, data = joined.buffers()
    if data is None:
        return memoryview(b"")
    return memoryview(data)[: np.frombuffer(ends, np.int32)[len(joined)]]


def _as_json(events: pa.Array, offsets: Int64s, segment_id: int) -> bytes:
    lines = []
    for event, offset in zip(events.to_pylist(), offsets.tolist(), strict=True):
        try:
            made: dict[str, object] = {"event": event.decode()}
        except UnicodeDecodeError:
            made = {"event_base64": base64.b64encode(event).decode()}
        lines.append(json.dumps({**made, "segment": segment_id, "offset": offset}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode()
