"""Encodes what is known of one segment, for checkpoints, the metadata table and the log.

Layout, big-endian::

    id i64 | flags u8 | length i64 | start_offset i64 | storage_length i64 | last_modified_ms i64 | merged_into i64
    | name_length u16 | attribute_count u32 | name utf-8 | count * (attribute id 16 bytes | value i64)

The attributes are those in memory; ``NULL_ATTRIBUTE_VALUE`` is one that is absent whatever the attribute index says.

flags: 1 sealed, 2 sealed in Tier 2, 4 merged, 8 deleted, 16 the metadata table may have an entry of it.

A record that stands by itself has a version (u8) in front: 1, or 2 if the segment has an attribute index, without which
a program would take a writer for a new one; and its merges behind it:
count u32 | count * (source key 16 bytes | target_length i64 | time i64), oldest first.
"""

from __future__ import annotations

import struct
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2, AttributeId
from segment_service.contracts.merge_records import MergeRecord
from segment_service.contracts.segment_metadata import SegmentMetadata

RECORD_VERSION: Final = 2
_VERSION_WITH_ALL_ATTRIBUTES: Final = 1

_SEGMENT: Final = struct.Struct(">qBqqqqqHI")
_ATTRIBUTE: Final = struct.Struct(">16sq")
_COUNT: Final = struct.Struct(">I")
_MERGE: Final = struct.Struct(">16sqq")

_SEALED: Final = 1
_SEALED_IN_STORAGE: Final = 2
_MERGED: Final = 4
_DELETED: Final = 8
_IN_TABLE: Final = 16


def write_segment(segment: SegmentMetadata) -> list[bytes]:
    """The parts of the layout, without merges."""
    name = segment.name.encode()
    flags = (
        (_SEALED if segment.is_sealed else 0)
        | (_SEALED_IN_STORAGE if segment.is_sealed_in_storage else 0)
        | (_MERGED if segment.is_merged else 0)
        | (_DELETED if segment.is_deleted else 0)
        | (_IN_TABLE if segment.in_table else 0)
    )
    head = _SEGMENT.pack(
        segment.segment_id,
        flags,
        segment.length,
        segment.start_offset,
        segment.storage_length,
        segment.last_modified_ms,
        segment.merged_into,
        len(name),
        len(segment.attributes),
    )
    return [head, name, *(_ATTRIBUTE.pack(key, value) for key, value in segment.attributes.items())]


def read_segment(data: bytes, position: int) -> tuple[SegmentMetadata, int]:
    """The segment at a position, and the end of it. ``struct.error`` or ``UnicodeDecodeError`` if it is cut short."""
    (
        segment_id,
        flags,
        length,
        start_offset,
        storage_length,
        last_modified_ms,
        merged_into,
        name_length,
        attribute_count,
    ) = _SEGMENT.unpack_from(data, position)
    position += _SEGMENT.size
    name = data[position : position + name_length].decode()
    position += name_length
    attributes: dict[AttributeId, int] = {}
    for _ in range(attribute_count):
        key, value = _ATTRIBUTE.unpack_from(data, position)
        attributes[AttributeId(key)] = value
        position += _ATTRIBUTE.size
    segment = SegmentMetadata(
        segment_id=segment_id,
        name=name,
        length=length,
        start_offset=start_offset,
        storage_length=storage_length,
        is_sealed=bool(flags & _SEALED),
        is_sealed_in_storage=bool(flags & _SEALED_IN_STORAGE),
        is_merged=bool(flags & _MERGED),
        merged_into=merged_into,
        is_deleted=bool(flags & _DELETED),
        last_modified_ms=last_modified_ms,
        attributes=attributes,
        in_table=bool(flags & _IN_TABLE),
        index_high_water=attributes.get(ATTRIBUTES_IN_TIER2, 0),
    )
    return segment, position


def write_record(segment: SegmentMetadata) -> bytes:
    """A record that stands by itself."""
    merges = segment.merges or {}
    packed = (_MERGE.pack(key, *record) for key, record in merges.items())
    version = RECORD_VERSION if ATTRIBUTES_IN_TIER2 in segment.attributes else _VERSION_WITH_ALL_ATTRIBUTES
    return b"".join((bytes((version,)), *write_segment(segment), _COUNT.pack(len(merges)), *packed))


def read_record(data: bytes) -> SegmentMetadata:
    """``DataCorruption`` if the bytes are no record of a version known here."""
    if not data or not _VERSION_WITH_ALL_ATTRIBUTES <= data[0] <= RECORD_VERSION:
        raise DataCorruption(
            f"a segment's record of {len(data)} bytes has version {data[0] if data else 'none'}; this program reads "
            f"{_VERSION_WITH_ALL_ATTRIBUTES} and {RECORD_VERSION}: if a newer program wrote it, run that one"
        )
    try:
        segment, position = read_segment(data, 1)
        (count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        for _ in range(count):
            key, target_length, time_ms = _MERGE.unpack_from(data, position)
            position += _MERGE.size
            if segment.merges is None:
                segment.merges = {}
            segment.merges[key] = MergeRecord(target_length, time_ms)
    except (struct.error, UnicodeDecodeError) as error:
        raise DataCorruption(f"a segment's record of {len(data)} bytes is cut short or garbled: {error}") from error
    if position != len(data):
        raise DataCorruption(f"a segment's record of {len(data)} bytes, its fields take {position}")
    return segment
