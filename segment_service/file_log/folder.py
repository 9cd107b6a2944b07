"""Owns the folder of the logs of one store process: its lock, its threads, and a reserve for a full disk."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeVar

from pravega_common.errors import ConfigurationError, PravegaError, Unavailable
from pravega_common.invariants import check
from pravega_common.services.base import Service
from segment_service.file_log.container_files import ContainerFiles
from segment_service.file_log.files import Files
from segment_service.file_log.layout import plog_bytes_max
from segment_service.storage.blocking import BlockingCalls

T = TypeVar("T")

threads_max: Final = 16
"""Threads that write and sync, and so logs that do it at once."""
reserve_bytes: Final = 16 * 1024 * 1024
"""Space kept for ``relieve``: the frames in flight, a checkpoint behind them, and the files that they begin."""
call_time_max_s_default: Final = 60.0
"""Time that one write and its sync, or one take-over, may take; after it the log is over."""
_LOCK: Final = "lock"
_RESERVE: Final = "reserve"


def container_folder(root: Path, container_id: int) -> Path:
    """The folder of one container's log."""
    return root / f"c{container_id}"


class FileLogFolder(Service):
    """The folder ``root`` with the logs of all containers, for one process on one machine.

    While it runs, the file ``lock`` is locked exclusively (``flock``, which ends with the process). Within the process
    the logs of one container fence each other by epochs.
    """

    def __init__(
        self,
        root: Path,
        *,
        plog_bytes: int,
        call_time_max_s: float = call_time_max_s_default,
        reserve_bytes: int = reserve_bytes,
        files: Files | None = None,
    ) -> None:
        super().__init__("file-logs")
        check(plog_bytes <= plog_bytes_max, "plog files too large", plog_bytes=plog_bytes, limit=plog_bytes_max)
        self._root = root
        self._plog_bytes = plog_bytes
        self._reserve_bytes = reserve_bytes
        self._files = files or Files()
        self._calls = BlockingCalls("file logs", threads_max, call_time_max_s)
        self._lock: IO[str] | None = None
        self._reserve_lock = threading.Lock()
        self._containers: dict[int, ContainerFiles] = {}

    async def on_start(self) -> None:
        await self.run(self._open)

    async def on_stop(self) -> None:
        self._calls.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def container(self, container_id: int) -> ContainerFiles:
        """The files of one container; all its logs in this process share them."""
        found = self._containers.get(container_id)
        if found is None:
            folder = container_folder(self._root, container_id)
            found = ContainerFiles(folder, container_id, self._plog_bytes, self._files)
            self._containers[container_id] = found
        return found

    async def run(self, function: Callable[[], T], *, overdue: type[PravegaError] = Unavailable) -> T:
        """Run a function on a thread, as ``BlockingCalls.run``."""
        return await self._calls.run(function, overdue=overdue)

    def release_reserve(self) -> bool:
        """Give the space of the reserve to what waits; false if it was given before."""
        path = self._root / _RESERVE
        with self._reserve_lock:
            if not path.exists():
                return False
            try:
                self._files.remove(path)
                self._files.sync_folder(self._root)
            except OSError as error:
                self.log.warning("the reserve cannot be given up", folder=str(self._root), error=error.strerror)
                return False
            return True

    def restore_reserve(self) -> None:
        """Take the space of the reserve again, if there is enough."""
        path = self._root / _RESERVE
        temporary = path.with_suffix(".new")
        with self._reserve_lock:
            if path.exists() or not self._reserve_bytes:
                return
            try:
                descriptor = self._files.create(temporary)
                try:
                    self._files.allocate(descriptor, 0, self._reserve_bytes)
                finally:
                    self._files.close(descriptor)
                self._files.rename(temporary, path)
            except OSError as error:
                with suppress(OSError):
                    self._files.remove(temporary)
                self.log.warning("no space is reserved for a full disk", folder=str(self._root), error=error.strerror)

    def _open(self) -> None:
        try:
            self._files.make_folder(self._root)
            self._lock = (self._root / _LOCK).open("a+")
        except OSError as error:
            raise ConfigurationError(
                f"Tier-1 folder {self._root} cannot be written ({error.strerror}): create it or choose another"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            raise ConfigurationError(
                f"Tier-1 folder {self._root} is in use by process {owner}: one store at a time can have it"
            ) from error
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        self.restore_reserve()
