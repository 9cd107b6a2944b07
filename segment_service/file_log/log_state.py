"""Keeps the state of a log (epoch, truncation point, acknowledged entries) in two slots of one file.

The slots are written in turn and in place. That needs no space, so a full disk stops no take-over and no truncation; a
torn write leaves the other slot. Slot (big endian, 72 bytes, every 4096 bytes)::

    magic "PLGS"  version u8  reserved u8[3]
    container u32  turn u64      the valid slot with the higher turn counts
    identity 16 bytes            of the log, made with it
    epoch u64                    the highest one ever given out
    acked u64                    entries that were durable when this was written: a recovery that finds fewer has
                                 lost data
    last_number u32              of the last plog file in which entries may have been acknowledged; all ones for none
    truncated_plog u32  truncated_offset u32   where the log begins; all ones for its very beginning
    reserved u32
    checksum u32                 CRC32C of everything before it
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.files import Files, write_all
from segment_service.file_log.layout import pack_address, unpack_address

file_name: Final = "state"
slot_bytes: Final = 4096
_MAGIC: Final = b"PLGS"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">4sB3xIQ16sQQIII4x")
_CHECKSUM: Final = struct.Struct(">I")
_NONE: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FileLogState:
    """The state of one container's log."""

    container_id: int
    identity: bytes
    turn: int = 0
    epoch: int = 0
    acked: int = 0
    last_number: int | None = None
    truncated_at: LogAddress | None = None


def encode_state(state: FileLogState) -> bytes:
    """One slot."""
    fields = _FIELDS.pack(
        _MAGIC,
        _VERSION,
        state.container_id,
        state.turn,
        state.identity,
        state.epoch,
        state.acked,
        _NONE if state.last_number is None else state.last_number,
        *pack_address(state.truncated_at),
    )
    return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(slot_bytes, b"\0")


def decode_state(data: Buffer, where: str) -> FileLogState | None:
    """The state in a slot, ``None`` if it is damaged or was never written; ``DataCorruption`` for another format."""
    if len(data) < _FIELDS.size + _CHECKSUM.size:
        return None
    magic, version, container, turn, identity, epoch, acked, last, plog, offset = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        return None
    if version != _VERSION:
        raise DataCorruption(f"{where}: log state format {version} is not known here; format {_VERSION} is")
    (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    if crc32c(memoryview(data)[: _FIELDS.size]) != checksum:
        return None
    last_number = None if last == _NONE else last
    return FileLogState(container, identity, turn, epoch, acked, last_number, unpack_address(plog, offset))


class StateFile:
    """The file of the state of one log. Not for several threads at once."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._path = folder / file_name
        self._files = files

    def read(self) -> FileLogState | None:
        """The state that counts; ``None`` without a file, ``DataCorruption`` without a valid slot."""
        try:
            descriptor = self._files.open(self._path)
        except FileNotFoundError:
            return None
        try:
            data = memoryview(self._files.read(descriptor, 2 * slot_bytes, 0))
        finally:
            self._files.close(descriptor)
        slots = [decode_state(data[at : at + slot_bytes], str(self._path)) for at in (0, slot_bytes)]
        found = [slot for slot in slots if slot is not None]
        if not found:
            raise DataCorruption(f"{self._path}: neither of its slots is whole: the state of the log was lost")
        return max(found, key=lambda state: state.turn)

    def create(self, state: FileLogState) -> None:
        """Make the file, with one slot written."""
        temporary = self._path.with_suffix(".new")
        descriptor = self._files.create(temporary)
        try:
            write_all(self._files, descriptor, [encode_state(state), bytes(slot_bytes)], 0)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        self._files.rename(temporary, self._path)
        self._files.sync_folder(self._folder)

    def write(self, state: FileLogState) -> FileLogState:
        """Replace the older slot; returns the state with its turn. It is durable when this returns."""
        state = replace(state, turn=state.turn + 1)
        descriptor = self._files.open(self._path)
        try:
            write_all(self._files, descriptor, [encode_state(state)], state.turn % 2 * slot_bytes)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        return state
