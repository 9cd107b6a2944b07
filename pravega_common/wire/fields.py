"""Reads and writes the field types of wire commands (docs/wire-protocol.md 1.3, 1.4, 1.5).

A command declares its layout once, as annotations (``request_id: I64``); this module gives each annotation its codec.
A *trailing* field may be absent at the end of a payload sent by an older peer (docs/wire-protocol.md 1.4): it is read
only when at least its ``presence_bytes`` remain, and always written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from pravega_common.wire import modified_utf8
from pravega_common.wire.errors import TooManyItems, WireDecodeError

string_bytes_max: Final = 65_535
"""Longest string on the wire, in encoded bytes."""

NO_VERSION: Final = -(2**63)
"""Version of a table key whose update is unconditional."""
NOT_EXISTS: Final = -1
"""Version of a table key that must be absent, and of an absent key in a reply."""

_I8 = struct.Struct(">b")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_KEY_HEAD = struct.Struct(">ii")
_ATTRIBUTE_UPDATE = struct.Struct(">16sbqq")
_NO_VERSION_BYTES: Final = _I64.pack(NO_VERSION)

ByteView = bytes | memoryview


class ShortPayload(Exception):
    """The payload ends inside a field; its caller, which knows the command, raises a ``WireDecodeError``."""


class PayloadReader:
    """A cursor over one payload; every length is checked against what remains before anything is allocated.

    A list of more than ``items_max`` items is refused by its count, before the first of them is read.
    """

    __slots__ = ("command", "end", "items_max", "position", "view")

    def __init__(self, command: str, view: memoryview, items_max: int | None = None) -> None:
        self.command = command
        self.items_max = items_max
        self.view = view
        self.position = 0
        self.end = len(view)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def fail(self, reason: str) -> WireDecodeError:
        return WireDecodeError(self.command, reason)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        start = self.position
        if self.end - start < layout.size:
            raise ShortPayload
        self.position = start + layout.size
        return layout.unpack_from(self.view, start)

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes as a view."""
        if count < 0:
            raise self.fail(f"negative length {count}")
        start = self.position
        if self.end - start < count:
            raise ShortPayload
        self.position = start + count
        return self.view[start : self.position]

    def count_of(self, item_bytes_min: int) -> int:
        """A list's item count, refused when the payload cannot hold that many items."""
        (count,) = self.unpack(_I32)
        if count < 0 or count * item_bytes_min > self.remaining:
            raise self.fail(f"{count} items of at least {item_bytes_min} bytes in {self.remaining} remaining bytes")
        if self.items_max is not None and count > self.items_max:
            raise TooManyItems(self.command, int(count), self.items_max)
        return int(count)

    def i8(self) -> int:
        return int(self.unpack(_I8)[0])

    def boolean(self) -> bool:
        return self.i8() != 0

    def i32(self) -> int:
        return int(self.unpack(_I32)[0])

    def i64(self) -> int:
        return int(self.unpack(_I64)[0])

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def string(self) -> str:
        raw = bytes(self.take(self.unpack(_U16)[0]))
        try:
            return modified_utf8.decode(raw)
        except UnicodeDecodeError as error:
            raise self.fail(f"string is not modified UTF-8: {error.reason} at byte {error.start}") from error

    def bulk(self) -> memoryview:
        return self.take(self.i32())

    def small_bytes(self) -> bytes:
        return bytes(self.bulk())

    def raw(self) -> memoryview:
        return self.take(self.remaining)


class PayloadWriter:
    """Collects a payload as parts; large values are kept as they were given, never copied."""

    __slots__ = ("_open", "length", "parts")

    def __init__(self) -> None:
        self.parts: list[ByteView | bytearray] = []
        self.length = 0
        self._open: bytearray | None = None

    def write(self, data: bytes) -> None:
        if self._open is None:
            self._open = bytearray()
            self.parts.append(self._open)
        self._open += data
        self.length += len(data)

    def write_view(self, data: ByteView) -> None:
        if len(data) > 0:
            self.parts.append(data)
            self.length += len(data)
            self._open = None

    def string(self, text: str) -> None:
        raw = modified_utf8.encode(text)
        if len(raw) > string_bytes_max:
            raise ValueError(f"a string of {len(raw)} bytes is longer than {string_bytes_max}")
        self.write(_U16.pack(len(raw)))
        self.write(raw)

    def bulk(self, data: ByteView) -> None:
        self.write(_I32.pack(len(data)))
        self.write_view(data)

    def event(self, data: ByteView) -> None:
        self.write(_KEY_HEAD.pack(0, len(data)))
        self.write_view(data)


class WireTableKey(NamedTuple):
    """A key and the version it is expected to have (request) or has (reply)."""

    key: bytes
    version: int = NO_VERSION


class WireTableEntry(NamedTuple):
    key: WireTableKey
    value: ByteView


class WireAttributeUpdate(NamedTuple):
    """One attribute change of a merge. ``update_type``: 0 none, 1 replace, 2 if greater, 3 accumulate, 4 if equals."""

    attribute_id: bytes
    update_type: int
    new_value: int
    old_value: int


class WireChunkInfo(NamedTuple):
    length_in_metadata: int
    length_in_storage: int
    start_offset: int
    chunk_name: str
    exists_in_storage: bool


class MergedSource(NamedTuple):
    """A source of a batch merge and the length of the target just after it was merged."""

    source: str
    new_target_write_offset: int


def _read_event(reader: PayloadReader) -> memoryview:
    event_type, length = reader.unpack(_KEY_HEAD)
    if event_type != 0:
        raise reader.fail(f"event has type {event_type}, must be 0")
    return reader.take(length)


def _read_table_key(reader: PayloadReader) -> WireTableKey:
    payload_size, key_length = reader.unpack(_KEY_HEAD)
    if key_length == 0:
        # Java writes no version after an empty key, though the size counts one; Rust writes it
        # (docs/wire-protocol.md 1.5). Neither an offset nor a size that follows an empty key ever reads as NO_VERSION,
        # so that is consumed.
        if reader.view[reader.position : reader.position + 8] == _NO_VERSION_BYTES:
            reader.take(8)
        return WireTableKey(b"", NO_VERSION)
    if payload_size < 0 or payload_size - 4 > reader.remaining:
        raise reader.fail(f"key payload of {payload_size} bytes in {reader.remaining + 4} remaining bytes")
    return WireTableKey(bytes(reader.take(key_length)), reader.i64())


def _write_table_key(writer: PayloadWriter, item: WireTableKey) -> None:
    writer.write(_KEY_HEAD.pack(4 + len(item.key) + 8, len(item.key)))
    if item.key:
        writer.write(item.key)
        writer.write(_I64.pack(item.version))


def _read_table_value(reader: PayloadReader) -> memoryview:
    payload_size, length = reader.unpack(_KEY_HEAD)
    if payload_size < 0 or payload_size - 4 > reader.remaining:
        raise reader.fail(f"value payload of {payload_size} bytes in {reader.remaining + 4} remaining bytes")
    return reader.take(length)


def _write_table_value(writer: PayloadWriter, value: ByteView) -> None:
    writer.write(_KEY_HEAD.pack(4 + len(value), len(value)))
    if len(value) < _inline_value_bytes_max:
        writer.write(bytes(value))
    else:
        writer.write_view(value)


_inline_value_bytes_max: Final = 4096


def _read_table_entries(reader: PayloadReader) -> tuple[WireTableEntry, ...]:
    return tuple(
        WireTableEntry(_read_table_key(reader), _read_table_value(reader)) for _ in range(reader.count_of(8 + 8))
    )


def _write_table_entries(writer: PayloadWriter, entries: tuple[WireTableEntry, ...]) -> None:
    writer.write(_I32.pack(len(entries)))
    for entry in entries:
        _write_table_key(writer, entry.key)
        _write_table_value(writer, entry.value)


def _list_of(
    item_bytes_min: int, read: Callable[[PayloadReader], Any], write: Callable[[PayloadWriter, Any], None]
) -> tuple[Callable[[PayloadReader], Any], Callable[[PayloadWriter, Any], None]]:
    def read_list(reader: PayloadReader) -> tuple[Any, ...]:
        return tuple(read(reader) for _ in range(reader.count_of(item_bytes_min)))

    def write_list(writer: PayloadWriter, items: tuple[Any, ...]) -> None:
        writer.write(_I32.pack(len(items)))
        for item in items:
            write(writer, item)

    return read_list, write_list


def _write_merged_source(writer: PayloadWriter, item: MergedSource) -> None:
    writer.string(item.source)
    writer.write(_I64.pack(item.new_target_write_offset))


def _write_chunk(writer: PayloadWriter, chunk: WireChunkInfo) -> None:
    writer.write(_I64.pack(chunk.length_in_metadata))
    writer.write(_I64.pack(chunk.length_in_storage))
    writer.write(_I64.pack(chunk.start_offset))
    writer.string(chunk.chunk_name)
    writer.write(b"\x01" if chunk.exists_in_storage else b"\x00")


def _read_frames(reader: PayloadReader) -> tuple[memoryview, ...]:
    """Frames with their headers; a batch has a thousand of them, so no call is made for each."""
    frames: list[memoryview] = []
    count = reader.count_of(_KEY_HEAD.size)
    view, end, start = reader.view, reader.end, reader.position
    for _ in range(count):
        if end - start < _KEY_HEAD.size:
            raise ShortPayload
        length = _KEY_HEAD.unpack_from(view, start)[1]
        if length < 0:
            raise reader.fail(f"negative length {length}")
        following = start + _KEY_HEAD.size + length
        if following > end:
            raise ShortPayload
        frames.append(view[start:following])
        start = following
    reader.position = start
    return tuple(frames)


def _write_frames(writer: PayloadWriter, frames: tuple[ByteView, ...]) -> None:
    writer.write(_I32.pack(len(frames)))
    writer.write_view(b"".join(frames))


def _write_flags(writer: PayloadWriter, value: int) -> None:
    if value:
        writer.write(_I64.pack(value))


def _write_uuid(writer: PayloadWriter, value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"an id of {len(value)} bytes, must be 16")
    writer.write(value)


@dataclass(frozen=True, slots=True)
class FieldType:
    """The codec of one kind of field; ``presence_bytes`` > 0 makes the field trailing."""

    name: str
    read: Callable[[PayloadReader], Any]
    write: Callable[[PayloadWriter, Any], None]
    presence_bytes: int = 0


def _trailing(kind: FieldType, presence_bytes: int) -> FieldType:
    return FieldType(kind.name, kind.read, kind.write, presence_bytes)


_I8_TYPE = FieldType("i8", PayloadReader.i8, lambda w, v: w.write(_I8.pack(v)))
_BOOL_TYPE = FieldType("bool", PayloadReader.boolean, lambda w, v: w.write(b"\x01" if v else b"\x00"))
_I32_TYPE = FieldType("i32", PayloadReader.i32, lambda w, v: w.write(_I32.pack(v)))
_I64_TYPE = FieldType("i64", PayloadReader.i64, lambda w, v: w.write(_I64.pack(v)))
_UUID_TYPE = FieldType("uuid", PayloadReader.uuid, _write_uuid)
_STR_TYPE = FieldType("str", PayloadReader.string, PayloadWriter.string)
_BULK_TYPE = FieldType("bytes", PayloadReader.bulk, PayloadWriter.bulk)
_BYTES_TYPE = FieldType("bytes", PayloadReader.small_bytes, PayloadWriter.bulk)
_RAW_TYPE = FieldType("raw", PayloadReader.raw, PayloadWriter.write_view)
_EVENT_TYPE = FieldType("event", _read_event, PayloadWriter.event)
_KEYS_TYPE = FieldType("keys", *_list_of(8, _read_table_key, _write_table_key))
_ENTRIES_TYPE = FieldType("entries", _read_table_entries, _write_table_entries)
_VERSIONS_TYPE = FieldType("versions", *_list_of(8, PayloadReader.i64, lambda w, v: w.write(_I64.pack(v))))
_STRINGS_TYPE = FieldType("strings", *_list_of(2, PayloadReader.string, PayloadWriter.string))
_MERGED_TYPE = FieldType("merged", *_list_of(10, lambda r: MergedSource(r.string(), r.i64()), _write_merged_source))
_FRAMES_TYPE = FieldType("frames", _read_frames, _write_frames)
_FLAGS_TYPE = FieldType("flags", PayloadReader.i64, _write_flags)
_CHUNKS_TYPE = FieldType(
    "chunks",
    *_list_of(27, lambda r: WireChunkInfo(r.i64(), r.i64(), r.i64(), r.string(), r.boolean()), _write_chunk),
)
_UPDATES_TYPE = FieldType(
    "updates",
    *_list_of(
        33,
        lambda r: WireAttributeUpdate(*r.unpack(_ATTRIBUTE_UPDATE)),
        lambda w, v: w.write(_ATTRIBUTE_UPDATE.pack(*v)),
    ),
)

I8 = Annotated[int, _I8_TYPE]
Bool = Annotated[bool, _BOOL_TYPE]
TrailingBool = Annotated[bool, _trailing(_BOOL_TYPE, 1)]
I32 = Annotated[int, _I32_TYPE]
TrailingI32 = Annotated[int, _trailing(_I32_TYPE, 4)]
I64 = Annotated[int, _I64_TYPE]
TrailingI64 = Annotated[int, _trailing(_I64_TYPE, 8)]
Uuid = Annotated[bytes, _UUID_TYPE]
Str = Annotated[str, _STR_TYPE]
TrailingStr = Annotated[str, _trailing(_STR_TYPE, 1)]
Bulk = Annotated[ByteView, _BULK_TYPE]
TrailingBytes = Annotated[bytes, _trailing(_BYTES_TYPE, 4)]
SmallBytes = Annotated[bytes, _BYTES_TYPE]
Raw = Annotated[ByteView, _RAW_TYPE]
EventData = Annotated[ByteView, _EVENT_TYPE]
Keys = Annotated[tuple[WireTableKey, ...], _KEYS_TYPE]
Entries = Annotated[tuple[WireTableEntry, ...], _ENTRIES_TYPE]
Versions = Annotated[tuple[int, ...], _VERSIONS_TYPE]
Strings = Annotated[tuple[str, ...], _STRINGS_TYPE]
MergedSources = Annotated[tuple[MergedSource, ...], _MERGED_TYPE]
Frames = Annotated[tuple[ByteView, ...], _FRAMES_TYPE]
TrailingFlags = Annotated[int, _trailing(_FLAGS_TYPE, 8)]
"""Written only if it is not 0: a peer that knows nothing of it gets the frame that it always got."""
Chunks = Annotated[tuple[WireChunkInfo, ...], _CHUNKS_TYPE]
TrailingUpdates = Annotated[tuple[WireAttributeUpdate, ...], _trailing(_UPDATES_TYPE, 1)]
