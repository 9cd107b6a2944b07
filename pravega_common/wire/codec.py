"""Encodes commands as bytes, and decodes them.

``encode_parts`` keeps bulk data as the views it was given, so that a read reply leaves as slices of cache blocks;
``decode`` gives bulk data as views of the payload, so that an append reaches the log without a copy. The commands
of the append and read paths, and those that are asked about many segments at once, have hand-written codecs over
precompiled structs; all others follow their layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pravega_common.errors import InvalidArgument
from pravega_common.wire import modified_utf8
from pravega_common.wire.commands import (
    COMMANDS,
    AppendBlock,
    AppendBlockEnd,
    ByteView,
    Command,
    DataAppended,
    GetStreamSegmentInfo,
    MergeSegmentsBatch,
    ReadSegment,
    SegmentRead,
    SegmentsBatchMerged,
    StreamSegmentInfo,
)
from pravega_common.wire.errors import TooManyItems, WireDecodeError
from pravega_common.wire.fields import MergedSource, PayloadReader, PayloadWriter, ShortPayload, string_bytes_max

__all__ = [
    "ReadHead",
    "WireDecodeError",
    "decode",
    "decode_by_layout",
    "decode_frame",
    "encode",
    "encode_by_layout",
    "encode_parts",
    "frame_header",
    "frame_header_bytes",
    "frame_type",
    "payload_bytes_max",
    "read_head",
    "segment_read_parts",
]

frame_header_bytes: Final = 8
payload_bytes_max: Final = 0x00FFFFFF - frame_header_bytes
"""Largest payload that a server accepts, in bytes (docs/wire-protocol.md 1.1)."""

_HEADER = struct.Struct(">ii")
_BLOCK_END_HEAD = struct.Struct(">16sii")
_BLOCK_END_TAIL = struct.Struct(">iqq")
_BLOCK_END_TAIL_SHORT = struct.Struct(">iq")
_BLOCK_END_FRAME_HEAD = struct.Struct(">ii16sii")
_BLOCK_FRAME_HEAD = struct.Struct(">ii16s")
_DATA_APPENDED = struct.Struct(">16sqqqq")
_DATA_APPENDED_FRAME = struct.Struct(">ii16sqqqq")
_U16 = struct.Struct(">H")
_I64 = struct.Struct(">q")
_READ_BODY = struct.Struct(">qiH")
_SEGMENT_READ_BODY = struct.Struct(">q??i")
_DATA_LENGTH = struct.Struct(">i")
_NUMBERED_STRING = struct.Struct(">qH")
_SEGMENT_INFO_BODY = struct.Struct(">???qqq")
_COUNTED_STRING = struct.Struct(">iH")


def frame_header(type_code: int, payload_length: int) -> bytes:
    """The eight bytes before a payload."""
    return _HEADER.pack(type_code, payload_length)


def encode(command: Command) -> bytes:
    """The whole frame of a command. Raises ``InvalidArgument`` when a field does not fit its layout."""
    parts = encode_parts(command)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def encode_parts(command: Command) -> list[bytes | memoryview]:
    """The frame of a command as consecutive pieces; bulk data is passed through, not copied."""
    try:
        fast = _FAST_ENCODERS.get(command.type_code)
        parts = encode_by_layout(command) if fast is None else fast(command)
    except (struct.error, ValueError, TypeError) as error:
        raise InvalidArgument(f"{type(command).__name__} cannot be encoded: {error}") from error
    return parts


def decode(type_code: int, payload: memoryview, items_max: int | None = None) -> Command:
    """The command of a payload. Bulk fields are views of ``payload``; bytes after the layout's end are ignored.

    Raises ``WireDecodeError`` for an unknown type code or a payload that does not follow the layout, ``TooManyItems``
    for a list of more than ``items_max`` items.
    """
    fast = _FAST_DECODERS.get(type_code)
    if fast is not None:
        try:
            return fast(payload)
        except (struct.error, UnicodeDecodeError):
            pass  # Decoded again below, field by field, for an error that names the reason.
    made = COMMANDS.get(type_code)
    if made is None:
        raise WireDecodeError("frame", f"unknown type code {type_code}")
    return decode_by_layout(made, payload, items_max)


def decode_frame(frame: ByteView, items_max: int | None = None) -> Command:
    """The command of a frame with its header, as it stands inside another command. Errors: those of ``decode``."""
    view = memoryview(frame)
    type_code, length = _HEADER.unpack_from(view)
    if length != len(view) - frame_header_bytes:
        raise WireDecodeError("frame", f"{length} bytes announced and {len(view) - frame_header_bytes} there")
    return decode(type_code, view[frame_header_bytes:], items_max)


def frame_type(frame: ByteView) -> int:
    """The type code of a frame with its header."""
    return int(_HEADER.unpack_from(frame)[0])


def decode_by_layout(made: type[Command], payload: memoryview, items_max: int | None = None) -> Command:
    """Decode a command field by field, as ``decode`` does for commands without a codec of their own."""
    reader = PayloadReader(made.__name__, payload, items_max)
    values: list[Any] = []
    try:
        for _, kind in made.layout:
            if reader.remaining < kind.presence_bytes:
                break
            values.append(kind.read(reader))
    except ShortPayload:
        field, _ = made.layout[len(values)]
        raise WireDecodeError(
            made.__name__, f"payload of {len(payload)} bytes ends inside field {field} at byte {reader.position}"
        ) from None
    except TooManyItems as error:
        # All requests with lists begin with the request id and a segment.
        for value in values[:2]:
            if isinstance(value, str):
                error.segment = value
            elif isinstance(value, int):
                error.request_id = value
        raise
    return made(*values)


def encode_by_layout(command: Command) -> list[bytes | memoryview]:
    """Encode a command field by field, as ``encode_parts`` does for commands without a codec of their own."""
    writer = PayloadWriter()
    for name, kind in command.layout:
        kind.write(writer, getattr(command, name))
    header = _HEADER.pack(command.type_code, _checked_length(writer.length))
    pieces = [part if isinstance(part, memoryview) else bytes(part) for part in writer.parts]
    if pieces and isinstance(pieces[0], bytes) and len(pieces[0]) <= _joined_header_bytes_max:
        pieces[0] = header + pieces[0]
        return pieces
    return [header, *pieces]


_joined_header_bytes_max: Final = 4096


def _checked_length(length: int) -> int:
    if length > payload_bytes_max:
        raise ValueError(f"payload of {length} bytes is larger than {payload_bytes_max}")
    return length


def _string(text: str) -> bytes:
    raw = modified_utf8.encode(text)
    if len(raw) > string_bytes_max:
        raise ValueError(f"a string of {len(raw)} bytes is longer than {string_bytes_max}")
    return raw


def _view_parts(head: bytes, data: ByteView, tail: bytes) -> list[bytes | memoryview]:
    return [head, data, tail] if len(data) else [head + tail]


def _encode_append_block(command: Any) -> list[bytes | memoryview]:
    _check_id(command.writer_id)
    head = _BLOCK_FRAME_HEAD.pack(3, _checked_length(16 + len(command.data)), command.writer_id)
    return _view_parts(head, command.data, b"")


def _check_id(writer_id: bytes) -> None:
    if len(writer_id) != 16:
        raise ValueError(f"an id of {len(writer_id)} bytes, must be 16")


def _encode_append_block_end(command: Any) -> list[bytes | memoryview]:
    _check_id(command.writer_id)
    length = len(command.data)
    head = _BLOCK_END_FRAME_HEAD.pack(
        4, _checked_length(44 + length), command.writer_id, command.size_of_whole_events, length
    )
    tail = _BLOCK_END_TAIL.pack(command.num_events, command.last_event_number, command.request_id)
    return _view_parts(head, command.data, tail)


def _encode_data_appended(command: Any) -> list[bytes | memoryview]:
    _check_id(command.writer_id)
    return [
        _DATA_APPENDED_FRAME.pack(
            7,
            48,
            command.writer_id,
            command.event_number,
            command.previous_event_number,
            command.request_id,
            command.current_segment_write_offset,
        )
    ]


def _encode_read_segment(command: Any) -> list[bytes | memoryview]:
    segment, token = _string(command.segment), _string(command.token)
    return [
        b"".join(
            (
                _HEADER.pack(9, 2 + len(segment) + 14 + len(token) + 8),
                _U16.pack(len(segment)),
                segment,
                _READ_BODY.pack(command.offset, command.suggested_length, len(token)),
                token,
                _I64.pack(command.request_id),
            )
        )
    ]


def _encode_get_segment_info(command: Any) -> list[bytes | memoryview]:
    segment, token = _string(command.segment), _string(command.token)
    return [
        b"".join(
            (
                _HEADER.pack(11, 10 + len(segment) + 2 + len(token)),
                _NUMBERED_STRING.pack(command.request_id, len(segment)),
                segment,
                _U16.pack(len(token)),
                token,
            )
        )
    ]


def _encode_segment_info(command: Any) -> list[bytes | memoryview]:
    segment = _string(command.segment)
    return [
        b"".join(
            (
                _HEADER.pack(12, 10 + len(segment) + _SEGMENT_INFO_BODY.size),
                _NUMBERED_STRING.pack(command.request_id, len(segment)),
                segment,
                _SEGMENT_INFO_BODY.pack(
                    command.exists,
                    command.is_sealed,
                    command.is_deleted,
                    command.last_modified,
                    command.write_offset,
                    command.start_offset,
                ),
            )
        )
    ]


def _encode_merge_batch(command: Any) -> list[bytes | memoryview]:
    if len(command.sources) != 1:
        return encode_by_layout(command)
    target, source, token = _string(command.target), _string(command.sources[0]), _string(command.token)
    return [
        b"".join(
            (
                _HEADER.pack(90, 18 + len(target) + len(source) + len(token)),
                _NUMBERED_STRING.pack(command.request_id, len(target)),
                target,
                _COUNTED_STRING.pack(1, len(source)),
                source,
                _U16.pack(len(token)),
                token,
            )
        )
    ]


def _encode_batch_merged(command: Any) -> list[bytes | memoryview]:
    if len(command.merged) != 1:
        return encode_by_layout(command)
    [(merged, length)] = command.merged
    target, source = _string(command.target), _string(merged)
    return [
        b"".join(
            (
                _HEADER.pack(91, 24 + len(target) + len(source)),
                _NUMBERED_STRING.pack(command.request_id, len(target)),
                target,
                _COUNTED_STRING.pack(1, len(source)),
                source,
                _I64.pack(length),
            )
        )
    ]


def segment_read_parts(
    segment: str, offset: int, *, at_tail: bool, end_of_segment: bool, data: Sequence[ByteView], request_id: int
) -> list[bytes | memoryview]:
    """The frame of a SegmentRead whose data is in several pieces, each passed through as it is."""
    name = _string(segment)
    length = sum(map(len, data))
    head = b"".join(
        (
            _HEADER.pack(10, _checked_length(2 + len(name) + 14 + length + 8)),
            _U16.pack(len(name)),
            name,
            _SEGMENT_READ_BODY.pack(offset, at_tail, end_of_segment, length),
        )
    )
    return [head, *(piece for piece in data if len(piece)), _I64.pack(request_id)]


def _encode_segment_read(command: Any) -> list[bytes | memoryview]:
    return segment_read_parts(
        command.segment,
        command.offset,
        at_tail=command.at_tail,
        end_of_segment=command.end_of_segment,
        data=(command.data,),
        request_id=command.request_id,
    )


def _decode_append_block(payload: memoryview) -> Command:
    if len(payload) < 16:
        raise struct.error
    return AppendBlock(bytes(payload[:16]), payload[16:])


def _decode_append_block_end(payload: memoryview) -> Command:
    writer_id, size_of_whole_events, length = _BLOCK_END_HEAD.unpack_from(payload)
    end = 24 + length
    if length < 0 or len(payload) < end + 12:
        raise struct.error
    data = payload[24:end]
    if len(payload) >= end + 20:
        num_events, last_event_number, request_id = _BLOCK_END_TAIL.unpack_from(payload, end)
        return AppendBlockEnd(writer_id, size_of_whole_events, data, num_events, last_event_number, request_id)
    num_events, last_event_number = _BLOCK_END_TAIL_SHORT.unpack_from(payload, end)
    return AppendBlockEnd(writer_id, size_of_whole_events, data, num_events, last_event_number)


def _decode_data_appended(payload: memoryview) -> Command:
    # A shorter payload of an older server raises struct.error and takes the general way.
    return DataAppended(*_DATA_APPENDED.unpack_from(payload))


def _decode_read_segment(payload: memoryview) -> Command:
    (length,) = _U16.unpack_from(payload)
    end = 2 + length
    offset, suggested_length, token_length = _READ_BODY.unpack_from(payload, end)
    token_end = end + 14 + token_length
    if len(payload) < token_end:
        raise struct.error
    segment = str(payload[2:end], "ascii")
    token = str(payload[end + 14 : token_end], "ascii")
    (request_id,) = _I64.unpack_from(payload, token_end)
    return ReadSegment(segment, offset, suggested_length, token, request_id)


def _decode_get_segment_info(payload: memoryview) -> Command:
    request_id, length = _NUMBERED_STRING.unpack_from(payload)
    end = 10 + length
    (token_length,) = _U16.unpack_from(payload, end)
    token_end = end + 2 + token_length
    if len(payload) < token_end:
        raise struct.error
    token = str(payload[end + 2 : token_end], "ascii")
    return GetStreamSegmentInfo(request_id, str(payload[10:end], "ascii"), token)


def _decode_segment_info(payload: memoryview) -> Command:
    # A shorter payload of an older server raises struct.error and takes the general way.
    request_id, length = _NUMBERED_STRING.unpack_from(payload)
    end = 10 + length
    body = _SEGMENT_INFO_BODY.unpack_from(payload, end)
    return StreamSegmentInfo(request_id, str(payload[10:end], "ascii"), *body)


def _decode_merge_batch(payload: memoryview) -> Command:
    request_id, target, source, end = _one_source(payload)
    (token_length,) = _U16.unpack_from(payload, end)
    token_end = end + 2 + token_length
    if len(payload) < token_end:
        raise struct.error
    return MergeSegmentsBatch(request_id, target, (source,), str(payload[end + 2 : token_end], "ascii"))


def _decode_batch_merged(payload: memoryview) -> Command:
    request_id, target, source, end = _one_source(payload)
    (length,) = _I64.unpack_from(payload, end)
    return SegmentsBatchMerged(request_id, target, (MergedSource(source, length),))


def _one_source(payload: memoryview) -> tuple[int, str, str, int]:
    """Request id, target, and the only source with the position behind it. Longer lists, which have limits, take the
    general way."""
    request_id, length = _NUMBERED_STRING.unpack_from(payload)
    target_end = 10 + length
    count, source_length = _COUNTED_STRING.unpack_from(payload, target_end)
    end = target_end + _COUNTED_STRING.size + source_length
    if count != 1 or len(payload) < end:
        raise struct.error
    return request_id, str(payload[10:target_end], "ascii"), str(payload[end - source_length : end], "ascii"), end


def _decode_segment_read(payload: memoryview) -> Command:
    (name_length,) = _U16.unpack_from(payload)
    body = 2 + name_length
    offset, at_tail, end_of_segment, length = _SEGMENT_READ_BODY.unpack_from(payload, body)
    end = body + 14 + length
    if length < 0:
        raise struct.error
    segment = str(payload[2:body], "ascii")
    (request_id,) = _I64.unpack_from(payload, end)
    return SegmentRead(segment, offset, at_tail, end_of_segment, payload[body + 14 : end], request_id)


class ReadHead(NamedTuple):
    """The fields of a SegmentRead in front of its data, and where in the frame the data are."""

    segment: str
    offset: int
    data_start: int
    data_bytes: int

    def without_data(self, frame: memoryview) -> bytes:
        """Returns the frame, or as much as is there of it, as one with the same fields and no data."""
        type_code, length = _HEADER.unpack_from(frame)
        fields = frame[frame_header_bytes : self.data_start - _DATA_LENGTH.size]
        rest = frame[self.data_start + self.data_bytes :]
        return b"".join((_HEADER.pack(type_code, length - self.data_bytes), fields, _DATA_LENGTH.pack(0), rest))


def read_head(frame: memoryview) -> ReadHead | None:
    """Returns the head of a frame that may not be complete yet.

    ``None`` if it is not a SegmentRead's, if not all of the head is there, and if ``decode`` would refuse it.
    """
    if len(frame) < frame_header_bytes + _U16.size or frame_type(frame) != SegmentRead.type_code:
        return None
    _, frame_length = _HEADER.unpack_from(frame)
    (name_length,) = _U16.unpack_from(frame, frame_header_bytes)
    name_start = frame_header_bytes + _U16.size
    data_start = name_start + name_length + _SEGMENT_READ_BODY.size
    if len(frame) < data_start:
        return None
    offset, _, _, data_bytes = _SEGMENT_READ_BODY.unpack_from(frame, name_start + name_length)
    if not 0 <= data_bytes <= frame_header_bytes + frame_length - data_start:
        return None
    name = bytes(frame[name_start : name_start + name_length])
    return ReadHead(name.decode("ascii"), offset, data_start, data_bytes) if name.isascii() else None


_FAST_ENCODERS: dict[int, Callable[[Any], list[bytes | memoryview]]] = {
    3: _encode_append_block,
    4: _encode_append_block_end,
    7: _encode_data_appended,
    9: _encode_read_segment,
    10: _encode_segment_read,
    11: _encode_get_segment_info,
    12: _encode_segment_info,
    90: _encode_merge_batch,
    91: _encode_batch_merged,
}
_FAST_DECODERS: dict[int, Callable[[memoryview], Command]] = {
    3: _decode_append_block,
    4: _decode_append_block_end,
    7: _decode_data_appended,
    9: _decode_read_segment,
    10: _decode_segment_read,
    11: _decode_get_segment_info,
    12: _decode_segment_info,
    90: _decode_merge_batch,
    91: _decode_batch_merged,
}
