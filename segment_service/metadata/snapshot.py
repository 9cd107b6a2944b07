"""Encodes a checkpoint: all metadata of a container at one sequence number. Versioned, golden bytes.

Layout, big-endian::

    version u8 | container_id u32 | identity 16 bytes | epoch i64 | sequence_number i64 | next_segment_id i64
               | segment_count u32
    per segment: id i64 | flags u8 | length i64 | start_offset i64 | storage_length i64 | last_modified_ms i64
                 | merged_into i64 | name_length u16 | attribute_count u32 | name utf-8
                 | count * (attribute id 16 bytes | value i64)
    merge_count u32 | count * (target id i64 | source key 16 bytes | target_length i64 | time i64)

The merges of one target follow each other, oldest first.
flags: 1 sealed, 2 sealed in Tier 2, 4 merged, 8 deleted. Version 1, which is read, has no identity and no merges.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.log_identity import identity_bytes, unknown_identity
from segment_service.contracts.merge_records import MergeRecord
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata

SNAPSHOT_VERSION: Final = 2
_VERSION_WITHOUT_IDENTITY: Final = 1
"""Without merges, too."""

_HEADER: Final = struct.Struct(">BI16sqqqI")
_HEADER_1: Final = struct.Struct(">BIqqqI")
_SEGMENT: Final = struct.Struct(">qBqqqqqHI")
_ATTRIBUTE: Final = struct.Struct(">16sq")
_COUNT: Final = struct.Struct(">I")
_MERGE: Final = struct.Struct(">q16sqq")

_SEALED: Final = 1
_SEALED_IN_STORAGE: Final = 2
_MERGED: Final = 4
_DELETED: Final = 8


def write_snapshot(metadata: ContainerMetadata, segments: Iterable[SegmentMetadata]) -> bytes:
    """The counters of ``metadata`` with ``segments`` (what will be committed, not what is) in its stead."""
    check(len(metadata.identity) == identity_bytes, "not the identity of a log", identity=metadata.identity)
    parts = [b""]
    merges: list[bytes] = []
    count = 0
    for segment in segments:
        count += 1
        if segment.merges:
            merges.extend(_MERGE.pack(segment.segment_id, key, *record) for key, record in segment.merges.items())
        name = segment.name.encode()
        flags = (
            (_SEALED if segment.is_sealed else 0)
            | (_SEALED_IN_STORAGE if segment.is_sealed_in_storage else 0)
            | (_MERGED if segment.is_merged else 0)
            | (_DELETED if segment.is_deleted else 0)
        )
        parts.append(
            _SEGMENT.pack(
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
        )
        parts.append(name)
        parts.extend(_ATTRIBUTE.pack(key, value) for key, value in segment.attributes.items())
    parts[0] = _HEADER.pack(
        SNAPSHOT_VERSION,
        metadata.container_id,
        metadata.identity,
        metadata.epoch,
        metadata.sequence_number,
        metadata.next_segment_id,
        count,
    )
    return b"".join((*parts, _COUNT.pack(len(merges)), *merges))


def read_snapshot(data: bytes) -> ContainerMetadata:
    """The metadata as it was written. ``DataCorruption`` if the bytes are no snapshot of a version known here."""
    try:
        metadata, count, position = _read_header(data)
        for _ in range(count):
            segment, position = _read_segment(data, position)
            metadata.segments[segment.segment_id] = segment
            if not segment.is_merged and not segment.is_deleted:
                metadata.ids[segment.name] = segment.segment_id
        if data[0] > _VERSION_WITHOUT_IDENTITY:
            position = _read_merges(data, position, metadata)
    except (struct.error, UnicodeDecodeError) as error:
        raise DataCorruption(f"checkpoint of {len(data)} bytes is cut short or garbled: {error}") from error
    if position != len(data):
        raise DataCorruption(f"checkpoint of {len(data)} bytes, its fields take {position}")
    return metadata


def _read_merges(data: bytes, position: int, metadata: ContainerMetadata) -> int:
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    for _ in range(count):
        target_id, key, target_length, time_ms = _MERGE.unpack_from(data, position)
        position += _MERGE.size
        target = metadata.segments.get(target_id)
        if target is None or target_length > target.length:
            raise DataCorruption(f"checkpoint has a merge into segment {target_id} that does not fit: {target}")
        if target.merges is None:
            target.merges = {}
        target.merges[key] = MergeRecord(target_length, time_ms)
    return position


def _read_header(data: bytes) -> tuple[ContainerMetadata, int, int]:
    """The metadata without segments, their number, and the position of the first one."""
    version = data[0] if data else 0
    if version == SNAPSHOT_VERSION:
        _, container_id, identity, epoch, number, next_id, count = _HEADER.unpack_from(data)
        position = _HEADER.size
    elif version == _VERSION_WITHOUT_IDENTITY:
        _, container_id, epoch, number, next_id, count = _HEADER_1.unpack_from(data)
        identity, position = unknown_identity, _HEADER_1.size
    else:
        raise DataCorruption(
            f"checkpoint of {len(data)} bytes has version {version}; this program reads {_VERSION_WITHOUT_IDENTITY} "
            f"to {SNAPSHOT_VERSION}: if a newer program wrote it, run that one"
        )
    return ContainerMetadata(container_id, epoch, number, next_id, identity=identity), count, position


def _read_segment(data: bytes, position: int) -> tuple[SegmentMetadata, int]:
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
    )
    return segment, position
