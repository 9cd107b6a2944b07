"""Makes the system calls of the log in local files; tests put faults here."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pravega_common.runtime.synced_files import sync_folder
from segment_service.contracts.buffer import Buffer
from segment_service.storage.local_files import drop_written

buffers_per_write_max: Final = 512
"""Buffers of one ``pwritev``; below the limit of every system (1024)."""


class Files:
    """The operations on files and folders that the log needs. Each raises ``OSError``; none retries."""

    def create(self, path: Path) -> int:
        """A descriptor of a new file; an existing one is emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """A descriptor of an existing file, for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Take space of the file system for these bytes, so that writing them cannot lack any."""
        os.posix_fallocate(descriptor, offset, length)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write some of the bytes; returns how many."""
        return os.pwritev(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        """Make what was written durable, with the length of the file."""
        os.fdatasync(descriptor)

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        """At most ``length`` bytes; fewer only at the end of the file."""
        data = os.pread(descriptor, length, offset)
        while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
            data += more
        return data

    def forget_pages(self, descriptor: int, length: int = 0) -> None:
        """Drop the clean pages of the first ``length`` bytes (0: of all) from the memory of the system."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, length, os.POSIX_FADV_DONTNEED)

    def is_named(self, descriptor: int) -> bool:
        """Whether the file still has a name: nobody removed it."""
        return os.fstat(descriptor).st_nlink > 0

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Idempotent."""
        path.unlink(missing_ok=True)

    def make_folder(self, folder: Path) -> None:
        """Make the folder and those above it, durable; nothing if it exists."""
        if not folder.exists():
            self.make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in the folder durable."""
        sync_folder(folder)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)


class ReadOnlyFiles(Files):
    """Opens files for reading only; whatever else is asked of them, the system refuses."""

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def write_all(files: Files, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
    """Write all buffers from ``offset`` on, without joining them; short writes go on where they ended."""
    views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while views:
        written = files.write(descriptor, views[:buffers_per_write_max], offset)
        if written <= 0:
            raise OSError(errno.EIO, "the file system wrote nothing and gave no error")
        offset += written
        drop_written(views, written)
