"""Encodes the manifest of a sorted map: its runs, newest first, and the state of the log that they stand for.

Bytes (big-endian)::

    4s  magic "PVSM"     H version (1)     H flags (1 removed)
    Q Q epoch, sequence (those of the name)
    16s identity of the log     Q high water     Q next segment id
    I   count of runs
    per run: I count of files
        per file: Q epoch, Q counter (its name), I length, I offset of the tail, I entries, I tombstones,
                  H length of the first key, H length of the last key, first key, last key
    I   CRC32C of everything before
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.contracts.log_identity import identity_bytes
from segment_service.contracts.segment_storage import LogState
from segment_service.storage.chunk_names import ManifestId

VERSION: Final = 1
_MAGIC: Final = b"PVSM"
_HEADER: Final = struct.Struct(f">4sHHQQ{identity_bytes}sQQI")
_COUNT: Final = struct.Struct(">I")
_FILE: Final = struct.Struct(">QQIIIIHH")
_CRC: Final = struct.Struct(">I")
_REMOVED: Final = 1


@dataclass(frozen=True, slots=True)
class RunFile:
    """One object of a run. ``epoch`` and ``counter`` are its name."""

    epoch: int
    counter: int
    length: int
    tail_offset: int
    entries: int
    tombstones: int
    first_key: bytes
    last_key: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """Files whose keys rise from one to the next."""

    files: tuple[RunFile, ...]

    @property
    def length(self) -> int:
        """Bytes of all its files."""
        return sum(file.length for file in self.files)


@dataclass(frozen=True, slots=True)
class MapManifest:
    """A state of a map."""

    id: ManifestId
    stamp: LogState
    runs: tuple[Run, ...]
    """Newest first."""
    is_removed: bool = False
    """The map is at its end, and what is left of it is deleted."""


def encode(manifest: MapManifest) -> bytes:
    stamp = manifest.stamp
    flags = _REMOVED if manifest.is_removed else 0
    parts = [
        _HEADER.pack(
            _MAGIC,
            VERSION,
            flags,
            *manifest.id,
            stamp.identity,
            stamp.high_water,
            stamp.next_segment_id,
            len(manifest.runs),
        )
    ]
    for run in manifest.runs:
        parts.append(_COUNT.pack(len(run.files)))
        parts.extend(_encode_file(file) for file in run.files)
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def _encode_file(file: RunFile) -> bytes:
    fields = _FILE.pack(
        file.epoch,
        file.counter,
        file.length,
        file.tail_offset,
        file.entries,
        file.tombstones,
        len(file.first_key),
        len(file.last_key),
    )
    return fields + file.first_key + file.last_key


def decode(data: bytes, name: str) -> MapManifest:
    """``DataCorruption`` (with the object's ``name``) if a byte is wrong or the version is not known."""
    if len(data) < _HEADER.size + _CRC.size:
        raise DataCorruption(f"manifest {name} has {len(data)} bytes, fewer than any manifest")
    body = data[: -_CRC.size]
    magic, version, flags, epoch, sequence, identity, high_water, next_id, count = _HEADER.unpack_from(body)
    if magic == _MAGIC and version != VERSION:
        raise DataCorruption(
            f"manifest {name} has version {version}, this software reads {VERSION}: use the version that wrote it"
        )
    if magic != _MAGIC or crc32c(body) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise DataCorruption(f"manifest {name} fails its checksum")
    runs: list[Run] = []
    position = _HEADER.size
    try:
        for _ in range(count):
            run, position = _decode_run(body, position)
            runs.append(run)
    except struct.error as error:
        raise DataCorruption(f"manifest {name} contradicts itself: {error}") from error
    if position != len(body):
        raise DataCorruption(f"manifest {name} has {len(body)} bytes, its fields take {position}")
    stamp = LogState(identity, high_water, next_id)
    return MapManifest(ManifestId(epoch, sequence), stamp, tuple(runs), bool(flags & _REMOVED))


def _decode_run(body: bytes, position: int) -> tuple[Run, int]:
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    files: list[RunFile] = []
    for _ in range(count):
        epoch, counter, length, tail, entries, tombstones, first_length, last_length = _FILE.unpack_from(body, position)
        first = position + _FILE.size
        position = first + first_length + last_length
        keys = body[first : first + first_length], body[first + first_length : position]
        files.append(RunFile(epoch, counter, length, tail, entries, tombstones, *keys))
    return Run(tuple(files)), position
