"""Writes the entries of one plog file."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.files import Files, write_all
from segment_service.file_log.layout import PlogFileHeader, encode_header, encode_mark, header_bytes, mark_bytes
from segment_service.plog.chain import Chain
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_envelope, envelope_bytes
from segment_service.storage.local_files import is_full

allocation_bytes: Final = 8 * 1024 * 1024
"""Space that a file takes ahead of what is written: syncing a file that does not grow costs less than half."""

ENTRIES_WRITTEN: Final = register("file_log.entries_written")
ENTRIES_SYNCED: Final = register("file_log.entries_synced")


class DiskFull(Exception):
    """The file system has no room for what was to be written; nothing was changed. Never leaves this package."""


@contextmanager
def refusing_when_full(what: str) -> Iterator[None]:
    """Raises ``DiskFull`` if a call that changes nothing then finds no room: not every file system keeps some for names
    and nodes of files."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFull(f"{what}: {error.strerror}") from error
        raise


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame to be written."""

    parts: Sequence[Buffer]
    payload_bytes: int
    checksum: int

    @property
    def stored_bytes(self) -> int:
        """Bytes that it takes in a file."""
        return mark_bytes + envelope_bytes + self.payload_bytes


class PlogWriter:
    """The open end of a plog file. After an ``OSError`` nobody knows what the file holds: close it."""

    def __init__(self, header: PlogFileHeader, path: Path, plog_bytes: int, files: Files) -> None:
        """Make the file at ``path`` with its header, durable but for its name. ``DiskFull`` if there is no room."""
        self.header = header
        self.end = header_bytes
        """Behind the last durable entry."""
        self._plog_bytes = plog_bytes
        self._files = files
        self._allocated = 0
        with refusing_when_full(f"plog {header.number}: no room for its file"):
            self._descriptor = files.create(path)
        try:
            self._allocate(header_bytes)
            write_all(files, self._descriptor, [encode_header(header)], 0)
            files.sync(self._descriptor)
        except BaseException as error:
            self.close()
            if isinstance(error, DiskFull):
                with suppress(OSError):
                    files.remove(path)
            raise

    @property
    def is_empty(self) -> bool:
        return self.end == header_bytes

    def has_place(self, frame: Frame) -> bool:
        """Whether the frame ends within the bound of the file."""
        return self.end + frame.stored_bytes <= self._plog_bytes

    def append(self, frames: Sequence[Frame], chain: Chain, epoch: int) -> tuple[list[LogAddress], Chain]:
        """Write the first frame, and as many more as have a place, with one sync; their addresses and the new chain.

        ``DiskFull`` before anything is written. Each entry says that all before ``chain`` ends were acknowledged.
        """
        chain = replace(chain)
        acked, position = chain.next_sequence or 0, self.end
        buffers: list[Buffer] = []
        addresses: list[LogAddress] = []
        for frame in frames:
            if addresses and position + frame.stored_bytes > self._plog_bytes:
                break
            sequence = chain.next_sequence or 0
            header = PlogEntryHeader(PlogEntryKind.DATA, epoch, sequence, acked, chain.last)
            envelope = encode_envelope(header, frame.payload_bytes, frame.checksum)
            mark = encode_mark(self.header.salt, position, envelope_bytes + frame.payload_bytes)
            buffers += (mark, envelope, *frame.parts)
            chain.next_sequence, chain.last = sequence + 1, LogAddress(self.header.number, position)
            addresses.append(chain.last)
            position += frame.stored_bytes
        if position > self._allocated:
            self._allocate(position)
            self._files.forget_pages(self._descriptor, self.end)
        write_all(self._files, self._descriptor, buffers, self.end)
        failpoint(ENTRIES_WRITTEN)
        self._files.sync(self._descriptor)
        failpoint(ENTRIES_SYNCED)
        if not self._files.is_named(self._descriptor):
            raise OSError(errno.ENOENT, "the file was removed while the log wrote to it")
        self.end = position
        return addresses, chain

    def close(self) -> None:
        """Let the file go; every byte was synced, or its loss was said."""
        with suppress(OSError):
            self._files.close(self._descriptor)

    def _allocate(self, end: int) -> None:
        """Take space for the file up to ``end``: a step ahead of it, or only that where there is no more."""
        ahead = min(max(end, self._allocated + allocation_bytes), max(end, self._plog_bytes))
        for target in (ahead, end):
            try:
                self._files.allocate(self._descriptor, self._allocated, target - self._allocated)
            except OSError as error:
                if not is_full(error):
                    raise
                continue
            self._allocated = target
            return
        raise DiskFull(f"plog {self.header.number}: no room for {end - self._allocated} more bytes")
