"""Keeps chunks as files of one directory (local, or any mount with atomic rename and fsync)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import structlog

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    PravegaError,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.synced_files import sync_folder
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.storage.blocking import BlockingCalls, call_time_max_s_default, each, threads_max_default
from segment_service.storage.file_writer import FileWriter
from segment_service.storage.local_files import chunk_name_parts, is_full, missing_is, remove_file

T = TypeVar("T")

TEMPORARY = ".incoming"
"""Folder below the root for files that are being written; it is on the same file system, so rename is atomic."""

temporary_age_max_s = 3600.0
"""Age from which a file there belongs to no running put and is removed at the next start."""

folder_attempts_max = 8
"""How often a put makes its folder again when concurrent deletes keep removing it as empty."""

_REFUSALS: Final = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
)
"""How a file system says that it did not rename."""

page_names_max = 1000
"""Names that ``list`` reads per visit of a thread."""


class FilesystemChunkStorage:
    """A ``ChunkStorage`` in a directory. A file is complete and durable before it gets its name."""

    def __init__(
        self,
        root: str | Path,
        *,
        threads_max: int = threads_max_default,
        call_time_max_s: float = call_time_max_s_default,
        sync: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._root = str(Path(root).absolute())
        self._incoming = os.path.join(self._root, TEMPORARY)
        self._sync = sync
        self._files = FileWriter(sync=sync)
        self._calls = BlockingCalls("directory storage", threads_max, call_time_max_s)
        self._clock = clock or SystemClock()
        self._tickets = itertools.count(self._clock.wall_ms())
        self._log = structlog.get_logger(service="directory-storage")

    async def start(self) -> None:
        await self._calls.run(self._start)

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        await self._calls.run(lambda: self._put(name, data), overdue=UnknownOutcome)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        return await self._calls.run(lambda: self._get(name, offset, length))

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        return await self._calls.run(lambda: function(self._get(name, offset, length)))

    async def info(self, name: str) -> ChunkInfo:
        return await self._calls.run(lambda: self._info(name))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        """In memory are the names of one folder at each level at a time."""
        names = self._names(prefix, prefix[: prefix.rfind("/") + 1])
        while infos := await self._calls.run(lambda: self._page(prefix, names)):
            for info in infos:
                yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        return await self._calls.delete_all(names, self._delete_all)

    async def close(self) -> None:
        self._calls.close()

    # -- on the threads of the pool

    def _start(self) -> None:
        try:
            os.makedirs(self._incoming, exist_ok=True)
            self._remove_stale()  # first: it may make room
            self._probe()
        except OSError as error:
            if is_full(error):
                raise Unavailable(f"Tier-2 directory {self._root} cannot be made: {error.strerror}") from error
            raise ConfigurationError(
                f"Tier-2 directory {self._root} cannot be written ({error.strerror}): create it or choose another"
            ) from error

    def _remove_stale(self) -> None:
        for name in os.listdir(self._incoming):
            stale = os.path.join(self._incoming, name)
            with contextlib.suppress(FileNotFoundError):  # other stores start and write beside this one
                if self._clock.wall_ms() / 1000 - os.stat(stale).st_mtime > temporary_age_max_s:
                    os.unlink(stale)

    def _probe(self) -> None:
        """Write a file as puts do. A full disk can be read, and gets room again."""
        probe = self._temporary()
        try:
            self._files.write_new(probe, [b"probe"])
        except OSError as error:
            if not is_full(error):
                raise
            self._log.warning("nothing can be put: the disk is full", directory=self._root, error=error.strerror)
        finally:
            remove_file(probe)

    def _put(self, name: str, data: Sequence[Buffer]) -> None:
        target = self._path(name)
        check(not os.path.exists(target), "a chunk name was used twice", name=name)
        temporary = self._temporary()
        try:
            self._files.write_new(temporary, data)
            self._rename(temporary, target)
        except BaseException as error:
            with contextlib.suppress(OSError):
                remove_file(temporary)
            if isinstance(error, OSError):
                raise Unavailable(f"chunk {name} could not be written: {error.strerror}") from error
            raise
        self._sync_folder_of(target)

    def _rename(self, temporary: str, target: str) -> None:
        for attempt in range(folder_attempts_max):
            try:
                os.rename(temporary, target)
                return
            except OSError as error:
                if error.errno in _REFUSALS:
                    raise
                # A mount that gives up may have done it, and one that repeats a request whose answer was lost finds
                # its own work: the file is gone.
                if error.errno != errno.ENOENT or not os.path.exists(temporary):
                    raise UnknownOutcome(
                        f"chunk {os.path.basename(target)} may not have got its name: {error.strerror}"
                    ) from error
                if attempt == folder_attempts_max - 1:
                    raise
                self._make_folder(os.path.dirname(target))

    def _make_folder(self, folder: str) -> None:
        if folder == self._root or os.path.exists(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        if self._sync:
            with contextlib.suppress(FileNotFoundError):
                sync_folder(parent)

    def _sync_folder_of(self, target: str) -> None:
        try:
            if self._sync:
                sync_folder(os.path.dirname(target))
        except OSError as error:
            raise UnknownOutcome(
                f"chunk {os.path.basename(target)}: its folder could not be synced: {error.strerror}"
            ) from error

    def _get(self, name: str, offset: int, length: int) -> bytes:
        with missing_is(name), _failing_is_unavailable(name):
            descriptor = os.open(self._path(name), os.O_RDONLY)
            try:
                data = os.pread(descriptor, length, offset)
                while len(data) < length:
                    more = os.pread(descriptor, length - len(data), offset + len(data))
                    if not more:
                        raise DataCorruption(
                            f"chunk {name}: bytes {offset}+{length} wanted, it has {os.fstat(descriptor).st_size}"
                        )
                    data += more
                return data
            finally:
                os.close(descriptor)

    def _info(self, name: str) -> ChunkInfo:
        with missing_is(name), _failing_is_unavailable(name):
            return ChunkInfo(name, os.stat(self._path(name)).st_size)

    def _page(self, prefix: str, names: Iterator[str]) -> Sequence[ChunkInfo]:
        """The next chunks that are there; empty at the end."""
        found: list[ChunkInfo] = []
        with _failing_is_unavailable(f"list {prefix!r}"):
            while not found and (page := list(itertools.islice(names, page_names_max))):
                for name in page:
                    with contextlib.suppress(SegmentNotFound):  # deleted meanwhile
                        found.append(self._info(name))
        return found

    def _names(self, prefix: str, folder: str) -> Iterator[str]:
        """Names below a folder, which is given with the ``/`` at its end, that have the prefix, in order."""
        for name in self._entries(prefix, folder):
            if name.endswith("/"):
                yield from self._names(prefix, name)
            else:
                yield name

    def _entries(self, prefix: str, folder: str) -> Sequence[str]:
        """Entries of one folder that have the prefix, sorted; folders with a ``/`` at their end."""
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                found = [f"{folder}{entry.name}/" if entry.is_dir() else f"{folder}{entry.name}" for entry in entries]
        except FileNotFoundError:  # none of that name, or it was removed as empty meanwhile
            return []
        return sorted(name for name in found if name.startswith(prefix) and name != f"{TEMPORARY}/")

    def _delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        failed = each(names, self._delete)
        for folder in {os.path.dirname(name) for name in names} - {""}:
            with contextlib.suppress(OSError):  # not empty, or gone already
                os.rmdir(os.path.join(self._root, folder))
        return failed

    def _delete(self, name: str) -> None:
        with _failing_is_unavailable(name):
            remove_file(self._path(name))

    def _path(self, name: str) -> str:
        return "/".join((self._root, *chunk_name_parts(name)))

    def _temporary(self) -> str:
        return f"{self._incoming}/{os.getpid()}-{id(self):x}-{next(self._tickets):x}"


@contextlib.contextmanager
def _failing_is_unavailable(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"chunk {name}: {error.strerror}") from error
