"""Writes new files past the page cache where the file system can do it (``O_DIRECT``).

A chunk is written once and rarely read soon: what is new is served from the store's own cache. Pages taken for it from
the system would only be cleared, filled and thrown away; where memory is scarce or virtual, that costs several times as
much as the copy itself.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from segment_service.contracts.buffer import Buffer
from segment_service.storage.local_files import drop_written, remove_file

direct_bytes_min: Final = 64 * 1024
"""Smaller files go through the page cache: a write of its own to the device costs more than their pages."""
block_bytes: Final = 4096
"""Direct writes begin and end at multiples of this, in the file and in memory; it suits every common device."""
staging_bytes: Final = 1024 * 1024
"""Aligned memory of one thread, through which what it writes goes."""
buffers_per_write_max: Final = 512
"""Buffers of one ``writev``; below the limit of every system (1024)."""

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP)
"""How a file system says that it does not write directly, when the file is opened or when it is written."""


class FileWriter:
    """Writes whole new files, on any thread."""

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync
        self._is_direct = bool(_DIRECT)
        self._staging = threading.local()
        self._log = structlog.get_logger(service="directory-storage")

    @property
    def is_direct(self) -> bool:
        """Whether large files go past the page cache; ``False`` from the first refusal on."""
        return self._is_direct

    def write_new(self, path: str | Path, data: Sequence[Buffer]) -> None:
        """Make the file, durable when this returns. ``FileExistsError`` if there is one, ``OSError``."""
        length = sum(map(len, data))
        if self._is_direct and length >= direct_bytes_min:
            try:
                self._write(path, _DIRECT, lambda descriptor: self._write_directly(descriptor, data, length))
                return
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                self._is_direct = False
                self._log.info(
                    "the file system takes no direct writes, the page cache is used", path=os.path.dirname(path)
                )
                remove_file(path)
        self._write(path, 0, lambda descriptor: write_all(descriptor, data))

    def _write(self, path: str | Path, flags: int, fill: Callable[[int], None]) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o644)
        try:
            fill(descriptor)
            if self._sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write_directly(self, descriptor: int, data: Sequence[Buffer], length: int) -> None:
        """Whole blocks, the last one filled up; then the file is cut to its length."""
        staging = self._thread_staging()
        view = memoryview(staging)
        for filled in _staged(staging, data):
            size = -(-filled // block_bytes) * block_bytes
            written = os.write(descriptor, view[:size])
            if written != size:
                raise OSError(errno.EIO, f"{written} of {size} bytes were written")
        os.ftruncate(descriptor, length)

    def _thread_staging(self) -> mmap.mmap:
        staging: mmap.mmap | None = getattr(self._staging, "memory", None)
        if staging is None:
            staging = self._staging.memory = mmap.mmap(-1, staging_bytes)
        return staging


def _staged(staging: mmap.mmap, data: Sequence[Buffer]) -> Iterator[int]:
    """Fill ``staging`` with the next bytes; gives how many they are, all it can hold except the last time. Most buffers
    are a block or its checksum, at one call each."""
    staging.seek(0)
    room = len(staging)
    for buffer in data:
        if len(buffer) <= room:
            room -= staging.write(buffer)
            continue
        view = memoryview(buffer).cast("B")
        while len(view) > room:
            staging.write(view[:room])
            yield len(staging)
            staging.seek(0)
            view, room = view[room:], len(staging)
        room -= staging.write(view)
    if room < len(staging):
        yield len(staging) - room


def write_all(descriptor: int, data: Sequence[Buffer]) -> None:
    """Write all buffers without joining them."""
    views = [memoryview(buffer).cast("B") for buffer in data if len(buffer)]
    while views:
        drop_written(views, os.writev(descriptor, views[:buffers_per_write_max]))
