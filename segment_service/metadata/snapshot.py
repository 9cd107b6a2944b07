"""Encodes a checkpoint: all metadata of a container at one sequence number. Versioned, golden bytes.

Layout, big-endian::

    version u8 | container_id u32 | identity 16 bytes | epoch i64 | sequence_number i64 | next_segment_id i64
               | table_high_water i64 | segment_count u32 | segments (segment_record.py)
    merge_count u32 | count * (target id i64 | source key 16 bytes | target_length i64 | time i64)
    gone_count u32 | count * (id i64 | name_length u16 | name utf-8)

The merges of one target follow each other, oldest first. *Gone* are segments that were deleted or merged away and of
which the metadata table may have an entry. ``table_high_water`` is the high water in the stamp of the metadata table.
Version 3, which is read and written, has no segment with an attribute index; version 4 has one at least.
Version 2, which is read, has neither; version 1, which is read, has no identity and no merges either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2
from segment_service.contracts.log_identity import identity_bytes, unknown_identity
from segment_service.contracts.merge_records import MergeRecord
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.segment_record import read_segment, write_segment

SNAPSHOT_VERSION: Final = 4
_VERSION_WITH_ALL_ATTRIBUTES: Final = 3
_VERSION_WITHOUT_TABLE: Final = 2
_VERSION_WITHOUT_IDENTITY: Final = 1
"""Without merges, too."""

_HEADER: Final = struct.Struct(">BI16sqqqqI")
_HEADER_2: Final = struct.Struct(">BI16sqqqI")
_HEADER_1: Final = struct.Struct(">BIqqqI")
_COUNT: Final = struct.Struct(">I")
_MERGE: Final = struct.Struct(">q16sqq")
_GONE: Final = struct.Struct(">qH")


def write_snapshot(metadata: ContainerMetadata, segments: Iterable[SegmentMetadata]) -> bytes:
    """The counters of ``metadata`` with ``segments`` (what will be committed, not what is) in its stead."""
    check(len(metadata.identity) == identity_bytes, "not the identity of a log", identity=metadata.identity)
    parts = [b""]
    merges: list[bytes] = []
    count, version = 0, _VERSION_WITH_ALL_ATTRIBUTES
    for segment in segments:
        count += 1
        if ATTRIBUTES_IN_TIER2 in segment.attributes:
            version = SNAPSHOT_VERSION
        if segment.merges:
            merges.extend(_MERGE.pack(segment.segment_id, key, *record) for key, record in segment.merges.items())
        parts.extend(write_segment(segment))
    parts[0] = _HEADER.pack(
        version,
        metadata.container_id,
        metadata.identity,
        metadata.epoch,
        metadata.sequence_number,
        metadata.next_segment_id,
        metadata.table_high_water,
        count,
    )
    gone = [_GONE.pack(key, len(name.encode())) + name.encode() for key, name in metadata.changes.gone()]
    return b"".join((*parts, _COUNT.pack(len(merges)), *merges, _COUNT.pack(len(gone)), *gone))


def read_snapshot(data: bytes) -> ContainerMetadata:
    """The metadata as it was written. ``DataCorruption`` if the bytes are no snapshot of a version known here."""
    reader = _Reader(data)
    for _ in reader.steps():
        pass
    return reader.metadata


async def read_snapshot_in_slices(data: bytes, slices: TimeSlices) -> ContainerMetadata:
    """As ``read_snapshot``; others have the loop, too: 100,000 segments take a second."""
    reader = _Reader(data)
    for _ in reader.steps():
        await slices.step()
    return reader.metadata


class _Reader:
    """Reads a snapshot, a segment in each step."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.metadata = ContainerMetadata(0)

    def steps(self) -> Iterator[None]:
        data = self._data
        try:
            self.metadata, count, position = _read_header(data)
            for _ in range(count):
                position = self._read_segment(position)
                yield
            if data[0] > _VERSION_WITHOUT_IDENTITY:
                position = _read_merges(data, position, self.metadata)
            if data[0] > _VERSION_WITHOUT_TABLE:
                position = _read_gone(data, position, self.metadata)
        except (struct.error, UnicodeDecodeError) as error:
            raise DataCorruption(f"checkpoint of {len(data)} bytes is cut short or garbled: {error}") from error
        if position != len(data):
            raise DataCorruption(f"checkpoint of {len(data)} bytes, its fields take {position}")

    def _read_segment(self, position: int) -> int:
        segment, position = read_segment(self._data, position)
        self.metadata.segments[segment.segment_id] = segment
        if not segment.is_merged and not segment.is_deleted:
            self.metadata.ids[segment.name] = segment.segment_id
        elif segment.in_table:
            self.metadata.changes.add_gone(segment.segment_id, segment.name)
        return position


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


def _read_gone(data: bytes, position: int, metadata: ContainerMetadata) -> int:
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    for _ in range(count):
        segment_id, length = _GONE.unpack_from(data, position)
        position += _GONE.size
        metadata.changes.add_gone(segment_id, data[position : position + length].decode())
        position += length
    return position


def _read_header(data: bytes) -> tuple[ContainerMetadata, int, int]:
    """The metadata without segments, their number, and the position of the first one."""
    version = data[0] if data else 0
    table_high_water = 0
    if version in (SNAPSHOT_VERSION, _VERSION_WITH_ALL_ATTRIBUTES):
        _, container_id, identity, epoch, number, next_id, table_high_water, count = _HEADER.unpack_from(data)
        position = _HEADER.size
    elif version == _VERSION_WITHOUT_TABLE:
        _, container_id, identity, epoch, number, next_id, count = _HEADER_2.unpack_from(data)
        position = _HEADER_2.size
    elif version == _VERSION_WITHOUT_IDENTITY:
        _, container_id, epoch, number, next_id, count = _HEADER_1.unpack_from(data)
        identity, position = unknown_identity, _HEADER_1.size
    else:
        raise DataCorruption(
            f"checkpoint of {len(data)} bytes has version {version}; this program reads {_VERSION_WITHOUT_IDENTITY} "
            f"to {SNAPSHOT_VERSION}: if a newer program wrote it, run that one"
        )
    metadata = ContainerMetadata(container_id, epoch, number, next_id, identity=identity)
    metadata.table_high_water = table_high_water
    return metadata, count, position
