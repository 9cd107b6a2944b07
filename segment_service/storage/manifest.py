"""Encodes the list of a segment's chunks: a base, and deltas that each hold all changes since it.

Bytes (big-endian)::

    4s  magic "PVTM"     H version (2)      B kind (1 base, 2 delta)     B flags (1 sealed, 2 deleted)
    Q   segment id
    Q Q epoch, sequence (those of the name)
    Q Q epoch, sequence of the base (its own for a base)
    Q   start offset     the truncation offset, exact
    Q   first offset     where the first chunk begins; never above the start offset
    Q   merged into      segment id, 0 if not merged
    I I kept from, to    delta only: which of the base's chunks still count
    I   count            chunks that follow
    count x (Q segment id, Q epoch, Q counter, Q length of the data, I form, I checksum of the whole)
    I   CRC32C of everything before

Version 1, which is read and not written, has no form and no checksum: its chunks are raw, and nothing can be checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from segment_service.storage.chunk_format import ChunkForm, block_bytes
from segment_service.storage.chunk_names import ChunkId, ManifestId, ManifestKind, ManifestName

MAGIC = b"PVTM"
VERSION = 2
_HEADER = struct.Struct(">4sHBBQQQQQQQQIII")
_CHUNK = struct.Struct(">QQQQII")
_CHUNK_V1 = struct.Struct(">QQQQ")
_CHUNK_FORMS = {1: _CHUNK_V1, 2: _CHUNK}
_CHUNK_FIELDS = 6
_CRC = struct.Struct(">I")
_BASE, _DELTA = 1, 2
_SEALED, _DELETED = 1, 2

chunks_max = 4_000_000
"""Chunks of one segment: a manifest base of 160 MB; compaction keeps real ones far below."""


class ChunkRef(NamedTuple):
    """A chunk in a segment's list."""

    segment_id: int
    epoch: int
    counter: int
    length: int
    """Bytes of data; the object is longer by its checksums."""
    form: ChunkForm
    checksum: int
    """The checksum of the whole chunk (``chunk_format.py``); 0 for a raw one."""

    @property
    def block_count(self) -> int:
        return -(-self.length // block_bytes)

    @property
    def id(self) -> ChunkId:
        return ChunkId(self.segment_id, self.epoch, self.counter)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Base if ``base == id``, else delta. A deleted one (a tombstone) lists the chunks that are still to be deleted."""

    segment_id: int
    id: ManifestId
    base: ManifestId
    start_offset: int
    first_offset: int
    is_sealed: bool
    is_deleted: bool
    merged_into: int
    kept_from: int
    kept_to: int
    chunks: tuple[ChunkRef, ...]

    @property
    def is_base(self) -> bool:
        return self.base == self.id

    def with_id(self, id: ManifestId) -> Manifest:
        """The same state under another id."""
        return replace(self, id=id, base=id if self.is_base else self.base)

    def name(self, foreign: bool) -> ManifestName:
        """``foreign``: the segment has chunks that were written for others."""
        if self.is_deleted:
            kind = ManifestKind.TOMBSTONE
        elif self.is_base:
            kind = ManifestKind.BASE_FOREIGN if foreign else ManifestKind.BASE
        else:
            kind = ManifestKind.DELTA_FOREIGN if foreign else ManifestKind.DELTA
        return ManifestName(self.segment_id, self.id, kind)


def encoded_length(manifest: Manifest) -> int:
    """The length of ``encode``'s result."""
    return _HEADER.size + _CHUNK.size * len(manifest.chunks) + _CRC.size


def encode(manifest: Manifest) -> bytes:
    check(len(manifest.chunks) <= chunks_max, "too many chunks for one manifest", segment=manifest.segment_id)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        _BASE if manifest.is_base else _DELTA,
        (_SEALED if manifest.is_sealed else 0) | (_DELETED if manifest.is_deleted else 0),
        manifest.segment_id,
        *manifest.id,
        *manifest.base,
        manifest.start_offset,
        manifest.first_offset,
        manifest.merged_into,
        manifest.kept_from,
        manifest.kept_to,
        len(manifest.chunks),
    )
    body = b"".join((header, *(_CHUNK.pack(*chunk) for chunk in manifest.chunks)))
    return body + _CRC.pack(crc32c(body))


def decode(data: bytes, name: str) -> Manifest:
    """``DataCorruption`` (with the object's ``name``) if a byte is wrong or the version is not known."""
    if len(data) < _HEADER.size + _CRC.size:
        raise DataCorruption(f"manifest {name} has {len(data)} bytes, fewer than any manifest")
    body = memoryview(data)[: -_CRC.size]
    if crc32c(body) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise DataCorruption(f"manifest {name} fails its checksum")
    magic, version, kind, flags, segment_id, *numbers = _HEADER.unpack_from(body)
    epoch, sequence, base_epoch, base_sequence, start, first, merged_into, kept_from, kept_to, count = numbers
    if magic != MAGIC or version not in _CHUNK_FORMS:
        known = " and ".join(map(str, _CHUNK_FORMS))
        raise DataCorruption(
            f"manifest {name} has version {version}, this software reads {known}: use the version that wrote it"
        )
    rest = body[_HEADER.size :]
    chunk_form = _CHUNK_FORMS[version]
    if len(rest) != count * chunk_form.size:
        raise DataCorruption(f"manifest {name} announces {count} chunks and has {len(rest)} bytes of them")
    manifest = Manifest(
        segment_id=segment_id,
        id=ManifestId(epoch, sequence),
        base=ManifestId(base_epoch, base_sequence),
        start_offset=start,
        first_offset=first,
        is_sealed=bool(flags & _SEALED),
        is_deleted=bool(flags & _DELETED),
        merged_into=merged_into,
        kept_from=kept_from,
        kept_to=kept_to,
        chunks=tuple(_chunk_of(fields, name) for fields in chunk_form.iter_unpack(rest)),
    )
    if (kind == _BASE) != manifest.is_base or kept_from > kept_to:
        raise DataCorruption(f"manifest {name} contradicts itself")
    return manifest


def _chunk_of(fields: tuple[int, ...], name: str) -> ChunkRef:
    segment_id, epoch, counter, length, form, checksum = fields if len(fields) == _CHUNK_FIELDS else (*fields, 0, 0)
    try:
        return ChunkRef(segment_id, epoch, counter, length, ChunkForm(form), checksum)
    except ValueError:
        raise DataCorruption(
            f"manifest {name} lists a chunk of form {form}, this software reads up to {max(ChunkForm)}: "
            "use the version that wrote it"
        ) from None
