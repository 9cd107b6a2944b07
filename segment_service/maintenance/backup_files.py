"""Reads and writes the files of a backup: frames of logs, and the inventory that is written last.

::

    inventory          every other file with its length and CRC32C; without it the folder is no backup
    log/c00003         frames: header "PVBL" | version u16, then per frame
                       plog u64 | offset u64 | length u32 | crc32c u32 of these and of the frame | bytes
    tier2/...          objects of Tier 2 under their names

The inventory is text: a magic line with the version, one line of JSON (``BackupHeader``), one line
``<crc32c> <length> <name>`` per file, ``end <files> <crc32c of everything before>``. Numbers of CRC are hexadecimal.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from pravega_common.runtime.synced_files import sync_folder
from segment_service.contracts.data_log import LogAddress, LogEntry, frame_bytes_max

INVENTORY: Final = "inventory"
UNFINISHED: Final = f"{INVENTORY}.new"
"""The inventory while it is not complete: empty from the beginning of the backup on, which keeps others out."""
TIER2: Final = "tier2"
LOGS: Final = "log"
inventory_line_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of the longest line, that of the header: some 300 bytes a container."""
read_bytes: Final = 1024 * 1024
"""Bytes of a file that are in memory while its CRC is computed."""

_VERSION: Final = 1
_MAGIC_LINE: Final = b"pravega-spark backup "
_LOG_HEADER: Final = struct.Struct(">4sH")
_LOG_MAGIC: Final = b"PVBL"
_FRAME: Final = struct.Struct(">QQI")
_CRC: Final = struct.Struct(">I")
_WAY_OUT: Final = "use another backup, or make a new one"


@dataclass(frozen=True, slots=True)
class ContainerInBackup:
    """One container of a backup that ran at least once."""

    container_id: int
    epoch: int
    """No frame, mark or object has a higher one."""
    identity: str
    """That of the log, hexadecimal."""
    last_operation: int
    next_segment_id: int
    tier2_from: tuple[int, int]
    """Address of the last frame that was read before the first manifest: no checkpoint behind it counts."""
    operations: int


@dataclass(frozen=True, slots=True)
class BackupHeader:
    """The first line of an inventory."""

    backup_id: str
    """32 hexadecimal digits, random."""
    cluster: str
    begun_ms: int
    containers: int
    """Containers of the cluster; those that never ran are not in ``parts``."""
    parts: tuple[ContainerInBackup, ...]


@dataclass(frozen=True, slots=True)
class InventoryLine:
    """One file of a backup, by its name below the folder."""

    name: str
    length: int
    checksum: int


def log_path(folder: Path, container_id: int) -> Path:
    return folder / LOGS / f"c{container_id:05d}"


class LogFile:
    """Appends frames to the copy of a log."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb")
        self._file.write(_LOG_HEADER.pack(_LOG_MAGIC, _VERSION))

    def append(self, entry: LogEntry) -> None:
        fields = _FRAME.pack(entry.address.plog_number, entry.address.offset, len(entry.payload))
        self._file.write(fields)
        self._file.write(_CRC.pack(crc32c(entry.payload, crc32c(fields))))
        self._file.write(entry.payload)

    def sync(self) -> None:
        """Return once all frames are durable."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> Iterator[LogEntry]:
    """The frames of a copy. ``DataCorruption`` if it is damaged, or ends in the middle of one."""
    with path.open("rb") as file:
        head = file.read(_LOG_HEADER.size)
        if len(head) < _LOG_HEADER.size or head[:4] != _LOG_MAGIC:
            raise DataCorruption(f"{path} is no copy of a log; {_WAY_OUT}")
        version = _LOG_HEADER.unpack(head)[1]
        if version != _VERSION:
            raise DataCorruption(
                f"{path} has version {version}; this program reads {_VERSION}: if a newer one wrote it, run that"
            )
        while fields := file.read(_FRAME.size + _CRC.size):
            yield _frame(fields, file, path)


def _frame(fields: bytes, file: IO[bytes], path: Path) -> LogEntry:
    if len(fields) < _FRAME.size + _CRC.size:
        raise DataCorruption(f"{path} ends in the middle of a frame; {_WAY_OUT}")
    plog_number, offset, length = _FRAME.unpack_from(fields)
    payload = file.read(length) if length <= frame_bytes_max else b""
    (expected,) = _CRC.unpack_from(fields, _FRAME.size)
    if len(payload) < length or crc32c(payload, crc32c(fields[: _FRAME.size])) != expected:
        raise DataCorruption(f"{path}: the frame of plog {plog_number} at {offset} is damaged or cut short; {_WAY_OUT}")
    return LogEntry(LogAddress(plog_number, offset), memoryview(payload))


# --- the inventory


def write_inventory(folder: Path, header: BackupHeader) -> int:
    """Read every file of the backup back, and make it a backup by its inventory; the number of files."""
    temporary = folder / UNFINISHED
    count = 0
    with temporary.open("wb") as file:
        crc = _write(file, b"%s%d\n" % (_MAGIC_LINE, _VERSION), 0)
        crc = _write(file, json.dumps(asdict(header)).encode() + b"\n", crc)
        for path in _files(folder):
            length, checksum = measure(path)
            line = f"{checksum:08x} {length} {path.relative_to(folder).as_posix()}\n"
            crc = _write(file, line.encode(), crc)
            count += 1
        file.write(b"end %d %08x\n" % (count, crc))
        file.flush()
        os.fsync(file.fileno())
    for changed in (folder / LOGS, folder):
        if changed.is_dir():
            sync_folder(changed)
    temporary.rename(folder / INVENTORY)
    sync_folder(folder)
    return count


def _write(file: IO[bytes], line: bytes, crc: int) -> int:
    check(len(line) <= inventory_line_bytes_max, "a line of the inventory is too long", length=len(line))
    file.write(line)
    return crc32c(line, crc)


def _files(folder: Path) -> Iterator[Path]:
    """The files of logs and of Tier 2, without those that a put left unfinished."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if Path(root) != folder:
            yield from (Path(root) / name for name in sorted(names))


def measure(path: Path) -> tuple[int, int]:
    """Length and CRC32C of a file; ``DataCorruption`` if it is missing."""
    length = checksum = 0
    try:
        with path.open("rb") as file:
            while part := file.read(read_bytes):
                length += len(part)
                checksum = crc32c(part, checksum)
    except FileNotFoundError:
        raise DataCorruption(f"{path} is missing from the backup; {_WAY_OUT}") from None
    return length, checksum


def read_header(folder: Path) -> BackupHeader:
    """``DataCorruption`` if the folder is no finished backup, or of a version that is not known here."""
    try:
        with (folder / INVENTORY).open("rb") as file:
            return _header(folder, file)[0]
    except (FileNotFoundError, NotADirectoryError):
        raise DataCorruption(
            f"{folder} has no inventory, so it is no backup, or one that was interrupted; {_WAY_OUT}"
        ) from None


def _header(folder: Path, file: IO[bytes]) -> tuple[BackupHeader, int]:
    magic, text = file.readline(64), file.readline(inventory_line_bytes_max)
    if not magic.startswith(_MAGIC_LINE):
        raise DataCorruption(f"{folder / INVENTORY} is no inventory of a backup; {_WAY_OUT}")
    version = magic[len(_MAGIC_LINE) :].strip()
    if version != b"%d" % _VERSION:
        raise DataCorruption(
            f"{folder} is a backup of version {version.decode(errors='replace')}; this program reads {_VERSION}: if a "
            "newer one made it, run that"
        )
    try:
        fields = json.loads(text)
        parts = [ContainerInBackup(**{**one, "tier2_from": tuple(one["tier2_from"])}) for one in fields.pop("parts")]
        return BackupHeader(**fields, parts=tuple(parts)), crc32c(text, crc32c(magic))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataCorruption(f"{folder / INVENTORY}: the header is damaged ({error}); {_WAY_OUT}") from error


def read_inventory(folder: Path) -> Iterator[InventoryLine]:
    """The files of a backup. ``DataCorruption``, at the end, if the inventory is damaged or cut short: read all of it
    before you believe any of it."""
    with (folder / INVENTORY).open("rb") as file:
        _, crc = _header(folder, file)
        for count, line in enumerate(iter(lambda: file.readline(inventory_line_bytes_max), b"")):
            if line == b"end %d %08x\n" % (count, crc):
                return
            yield _line(folder, line)
            crc = crc32c(line, crc)
    raise DataCorruption(f"{folder / INVENTORY} is damaged or cut short; {_WAY_OUT}")


def _line(folder: Path, line: bytes) -> InventoryLine:
    try:
        checksum, length, name = line.decode().rstrip("\n").split(" ", 2)
        return InventoryLine(name, int(length), int(checksum, 16))
    except ValueError as error:
        raise DataCorruption(f"{folder / INVENTORY} has a damaged line {line[:80]!r}; {_WAY_OUT}") from error


def verify(folder: Path) -> BackupHeader:
    """Read the whole backup, and return its header. ``DataCorruption`` names the first file that is not as it was."""
    header = read_header(folder)
    for _ in read_inventory(folder):
        pass
    for line in read_inventory(folder):
        length, checksum = measure(folder / line.name)
        if (length, checksum) != (line.length, line.checksum):
            raise DataCorruption(
                f"{folder / line.name} has {length} bytes with CRC32C {checksum:08x}, the inventory says {line.length} "
                f"and {line.checksum:08x}; {_WAY_OUT}"
            )
    return header
