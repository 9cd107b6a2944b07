"""Injects faults into the files of a log: short writes, a full disk, failed syncs, and a power cut.

A power cut is what happens to a copy: each file keeps what it had at its last sync, and a file whose name was not
synced with its folder is gone.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from segment_service.contracts.buffer import Buffer
from segment_service.file_log.files import Files


class FaultyFiles(Files):
    """Real files; what goes wrong is set from outside."""

    def __init__(self) -> None:
        self.write_bytes_max = 0
        """Bytes that one write takes at most; 0 for all."""
        self.room_bytes: int | None = None
        """Space that may still be allocated; ``None`` for any."""
        self.write_error = 0
        """Error number of every write from now on."""
        self.sync_error = 0
        """Error number of the next sync of a file."""
        self.syncs = 0
        self.hold_sync = threading.Event()
        """Syncs wait until it is set."""
        self.hold_sync.set()
        self._lock = threading.Lock()
        self._paths: dict[int, Path] = {}
        self._durable: dict[Path, bytes] = {}
        self._unnamed: dict[Path, bytes] = {}
        self._sizes: dict[Path, int] = {}

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        with self._lock:
            self._paths[descriptor] = path
        return descriptor

    def open(self, path: Path) -> int:
        descriptor = super().open(path)
        with self._lock:
            self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._paths.pop(descriptor, None)
        super().close(descriptor)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        with self._lock:
            if self.room_bytes is not None:
                if length > self.room_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.room_bytes -= length
            path = self._paths[descriptor]
            self._sizes[path] = max(self._sizes.get(path, 0), offset + length)
        super().allocate(descriptor, offset, length)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        if self.write_bytes_max:
            buffers = [b"".join(buffers)[: self.write_bytes_max]]
        return super().write(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        self.hold_sync.wait()
        error, self.sync_error = self.sync_error, 0
        if error:
            raise OSError(error, os.strerror(error))
        super().sync(descriptor)
        self.syncs += 1
        content = self.read(descriptor, os.fstat(descriptor).st_size, 0)
        with self._lock:
            path = self._paths[descriptor]
            target = self._durable if path in self._durable else self._unnamed
            target[path] = content

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        with self._lock:
            self._unnamed[new] = self._unnamed.pop(old, b"")
            self._sizes[new] = self._sizes.pop(old, 0)
            for descriptor, path in self._paths.items():
                if path == old:
                    self._paths[descriptor] = new

    def remove(self, path: Path) -> None:
        super().remove(path)
        with self._lock:
            freed = self._sizes.pop(path, 0)
            if self.room_bytes is not None:
                self.room_bytes += freed

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        with self._lock:
            for path in [path for path in self._unnamed if path.parent == folder and path.exists()]:
                self._durable[path] = self._unnamed.pop(path)
            for path in [path for path in self._durable if path.parent == folder and not path.exists()]:
                del self._durable[path]

    def cut_power(self, root: Path, target: Path) -> None:
        """Make ``target`` what a power cut leaves of ``root``, everything not synced being lost."""
        shutil.rmtree(target, ignore_errors=True)
        with self._lock:
            kept = dict(self._durable)
        for path, content in kept.items():
            copy = target / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
