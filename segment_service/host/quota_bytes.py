"""Tells how many bytes of a frame or an answer count for which scope's limit of bytes a second."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    ByteView,
    Command,
    ErrorMessage,
    ReadTable,
    ReadTableEntries,
    ReadTableEntriesDelta,
    ReadTableKeys,
    RemoveTableKeys,
    RequestBatch,
    RequestBatchAnswered,
    SegmentRead,
    UpdateTableEntries,
)
from segment_service.quotas.byte_bucket import ByteBucket
from segment_service.quotas.scope_buckets import ScopeBuckets

TABLE_UPDATES: Final = frozenset((UpdateTableEntries.type_code, RemoveTableKeys.type_code))
TABLE_READS: Final = (ReadTable, ReadTableKeys, ReadTableEntries, ReadTableEntriesDelta)
_writer_id_bytes: Final = 16
update_name_at: Final = 8
"""Where the length of a table's name stands in its update: after the request id. The length of the token follows the
name."""
_TEXT_BYTES: Final = struct.Struct(">H")
text_length_bytes: Final = _TEXT_BYTES.size
"""Bytes of the length of a text."""

Owed = dict[ByteBucket, int]
"""Bytes of an answer, by the bucket that they count for."""


def bucket_of_frame(
    buckets: ScopeBuckets, type_code: int, payload: memoryview, segment_of: Callable[[bytes], str]
) -> ByteBucket | None:
    """Finds the bucket of a frame that brings bytes. ``segment_of``: the segment of a writer, empty for one whose bytes
    do not count."""
    if type_code in TABLE_UPDATES:
        return buckets.of(_text_at(payload, update_name_at))
    return buckets.of(segment_of(bytes(payload[:_writer_id_bytes])))


def owed_for(buckets: ScopeBuckets, request: Any, answer: Command) -> Owed:
    """Returns what an answer with bytes of segments or tables costs; nothing for other answers."""
    owed: Owed = {}
    if isinstance(request, RequestBatch) and isinstance(answer, RequestBatchAnswered):
        for asked, reply in zip(request.requests, answer.replies, strict=True):
            if codec.frame_type(reply) == SegmentRead.type_code:
                _add(owed, buckets.of(_text_at(asked, codec.frame_header_bytes)), len(reply))
    elif isinstance(request, TABLE_READS) and not isinstance(answer, ErrorMessage):
        bucket = buckets.of(request.segment)
        if bucket is not None:
            _add(owed, bucket, sum(map(len, codec.encode_parts(answer))))
    return owed


def paid(owed: Owed) -> bool:
    """Takes what is owed if nobody has to wait for it; whether it did."""
    if not all(bucket.is_open for bucket in owed):
        return False
    for bucket, size in owed.items():
        bucket.take(size)
    return True


async def pay_in_turn(owed: Owed) -> None:
    """Waits for each scope's turn, and takes."""
    for bucket, size in owed.items():
        async with bucket.turn():
            bucket.take(size)


def _add(owed: Owed, bucket: ByteBucket | None, size: int) -> None:
    if bucket is not None:
        owed[bucket] = owed.get(bucket, 0) + size


def _text_at(view: ByteView, at: int) -> str:
    return encoded_text_at(view, at).decode("utf-8", "replace")


def encoded_text_at(view: ByteView, at: int) -> bytes:
    """Returns the text whose length stands there; empty where it is cut off, which decoding refuses later."""
    if len(view) < at + text_length_bytes:
        return b""
    (length,) = _TEXT_BYTES.unpack_from(view, at)
    start = at + text_length_bytes
    return bytes(view[start : start + length])
