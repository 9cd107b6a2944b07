"""Encodes the headers of plog files, and the mark in front of each entry.

A plog file is a header block and entries one behind the other; the space behind the last one is allocated and zero.
All numbers are big endian. Header (92 bytes, then zeros up to 4096)::

    magic "PLGH"  version u8  reserved u8[3]
    container u32  number u32    of the plog in its log, from 0
    identity 16 bytes            of the log: files of another one are refused
    salt 16 bytes                random, only in this file
    epoch u64                    of the owner that made the file
    first_sequence u64           of the first entry
    previous_plog u32  previous_offset u32   address of the entry before it; all ones for none
    previous_end u32             where the entries of the file before end: what lies behind was cut off
    reserved 12 bytes
    checksum u32                 CRC32C of everything before it

In front of each entry (``segment_service/plog/entry.py``) is a mark (8 bytes)::

    length u32    of the entry
    check u32     CRC32C of salt, position of the mark (u64) and length

No client knows the salt, so no payload can look like an entry, and an entry counts at its own place only. That lets
a recovery tell, behind bytes that fail, whether later entries follow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.entry import append_bytes_max, envelope_bytes

header_bytes: Final = 4096
"""Bytes of a file before its first mark: one block of every common device."""
_MAGIC: Final = b"PLGH"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">4sB3xII16s16sQQIII12x")
_CHECKSUM: Final = struct.Struct(">I")
_MARK: Final = struct.Struct(">II")
_PLACE: Final = struct.Struct(">QI")
mark_bytes: Final = _MARK.size
_NOWHERE: Final = 2**32 - 1
plog_bytes_max: Final = 2**31
"""Bytes of a plog file: entries refer to one another by offsets of 32 bits."""


@dataclass(frozen=True, slots=True)
class PlogFileHeader:
    """The fields of a file header."""

    container_id: int
    number: int
    identity: bytes
    salt: bytes
    epoch: int
    first_sequence: int
    previous: LogAddress | None
    previous_end: int


def pack_address(address: LogAddress | None) -> tuple[int, int]:
    """Two numbers of 32 bits; all ones for none."""
    return (_NOWHERE, _NOWHERE) if address is None else (address.plog_number, address.offset)


def unpack_address(plog: int, offset: int) -> LogAddress | None:
    return None if (plog, offset) == (_NOWHERE, _NOWHERE) else LogAddress(plog, offset)


def encode_header(header: PlogFileHeader) -> bytes:
    """The block that a plog file begins with."""
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        header.container_id,
        header.number,
        header.identity,
        header.salt,
        header.epoch,
        header.first_sequence,
        *pack_address(header.previous),
        header.previous_end,
    )
    return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(header_bytes, b"\0")


def decode_header(data: Buffer, where: str) -> PlogFileHeader:
    """The header in ``data``; ``DataCorruption`` naming ``where`` for anything else."""
    if len(data) < _FIELDS.size + _CHECKSUM.size:
        raise DataCorruption(f"{where}: {len(data)} bytes are too few for the header of a plog file")
    magic, version, container, number, identity, salt, epoch, first, plog, offset, end = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise DataCorruption(f"{where}: starts with {magic!r}, not with the header of a plog file")
    if version != _VERSION:
        raise DataCorruption(f"{where}: plog file format {version} is not known here; format {_VERSION} is")
    (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    if crc32c(memoryview(data)[: _FIELDS.size]) != checksum:
        raise DataCorruption(f"{where}: the header of the plog file fails its checksum")
    return PlogFileHeader(container, number, identity, salt, epoch, first, unpack_address(plog, offset), end)


def encode_mark(salt: bytes, position: int, length: int) -> bytes:
    """The mark at ``position`` of an entry of ``length`` bytes."""
    return _MARK.pack(length, _check_of(salt, position, length))


def decode_mark(data: Buffer, at: int, salt: bytes, position: int) -> int | None:
    """The length of the entry whose mark is at index ``at`` of ``data`` and at ``position`` of the file; ``None`` if
    there is no mark."""
    if at < 0 or at + mark_bytes > len(data):
        return None
    length, found = _MARK.unpack_from(data, at)
    if not envelope_bytes < length <= append_bytes_max or found != _check_of(salt, position, length):
        return None
    return int(length)


def _check_of(salt: bytes, position: int, length: int) -> int:
    return int(crc32c(_PLACE.pack(position, length), crc32c(salt)))
