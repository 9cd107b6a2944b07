"""Encodes the envelope of a plog entry, by which damage, gaps and reordering are detected.

A plog entry is the envelope and its payload: a data frame of the durable log, or a metadata record. Layout (big
endian, 56 bytes, then the payload)::

    magic "PLGF"  version u8  kind u8  reserved u16
    epoch u64            of the owner that wrote it
    sequence u64         number of the entry in its log stream, from 0, without gaps
    acked u64            entries of the stream that were acknowledged when this one was written: a recovery that
                         finds fewer has lost data
    previous_plog u32    address of the entry before it; all ones before the first
    previous_offset u32
    reserved u64
    payload_bytes u32
    checksum u32         CRC32C of everything before it and of the payload
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.checksums import joined_checksum
from segment_service.contracts.data_log import LogAddress

_MAGIC: Final = b"PLGF"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">4sBBHQQQIIQI")
_CHECKSUM: Final = struct.Struct(">I")
envelope_bytes: Final = _FIELDS.size + _CHECKSUM.size
append_bytes_max: Final = 2 * 1024 * 1024
"""Bytes of one plog append, envelope included (the specification's limit)."""
_NO_ADDRESS: Final = (2**32 - 1, 2**32 - 1)


class PlogEntryKind(enum.IntEnum):
    """The kind of log stream that an entry is in."""

    DATA = 1
    METADATA = 2


class PlogEntryHeader(NamedTuple):
    """The fields of an envelope that its writer chooses."""

    kind: PlogEntryKind
    epoch: int
    sequence: int
    acked: int
    previous: LogAddress | None


@dataclass(frozen=True, slots=True)
class PlogEntry:
    """A decoded entry."""

    header: PlogEntryHeader
    payload: memoryview


def encode_envelope(header: PlogEntryHeader, payload_bytes: int, payload_checksum: int) -> bytes:
    """The 56 bytes in front of a payload of this length, whose CRC32C is ``payload_checksum``."""
    previous = header.previous
    numbers = _NO_ADDRESS if previous is None else (previous.plog_number, previous.offset)
    check(envelope_bytes + payload_bytes <= append_bytes_max, "plog entry too large", payload_bytes=payload_bytes)
    fields = _FIELDS.pack(
        _MAGIC, _VERSION, header.kind, 0, header.epoch, header.sequence, header.acked, *numbers, 0, payload_bytes
    )
    return fields + _CHECKSUM.pack(joined_checksum(crc32c(fields), payload_checksum, payload_bytes))


def encode_entry(header: PlogEntryHeader, payload: bytes) -> bytes:
    """A whole entry, of a payload that is in one piece."""
    return encode_envelope(header, len(payload), crc32c(payload)) + payload


def decode_entry(data: Buffer, where: str) -> PlogEntry:
    """The entry in ``data``, its payload a view; ``DataCorruption`` naming ``where`` for anything else."""
    view = memoryview(data)
    if len(view) < envelope_bytes:
        raise DataCorruption(f"{where}: {len(view)} bytes are too few for an entry's envelope of {envelope_bytes}")
    magic, version, kind, _, epoch, sequence, acked, plog, offset, _, size = _FIELDS.unpack_from(view)
    if magic != _MAGIC:
        raise DataCorruption(f"{where}: starts with {magic!r}, not with an entry")
    if version != _VERSION:
        raise DataCorruption(f"{where}: entry format {version} is not known here; format {_VERSION} is")
    payload = view[envelope_bytes:]
    if len(payload) != size:
        raise DataCorruption(f"{where}: entry of {size} payload bytes holds {len(payload)}")
    (checksum,) = _CHECKSUM.unpack_from(view, _FIELDS.size)
    if crc32c(payload, crc32c(view[: _FIELDS.size])) != checksum:
        raise DataCorruption(f"{where}: entry {sequence} fails its checksum")
    if kind not in (PlogEntryKind.DATA, PlogEntryKind.METADATA):
        raise DataCorruption(f"{where}: entry kind {kind} is not known")
    previous = None if (plog, offset) == _NO_ADDRESS else LogAddress(plog, offset)
    return PlogEntry(PlogEntryHeader(PlogEntryKind(kind), epoch, sequence, acked, previous), payload)
