"""Keeps chunks as files of a ``pyarrow.fs`` file system: HDFS, a local folder, and the others that Arrow speaks."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType

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
from pravega_common.runtime.synced_files import sync_file, sync_folder
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.storage.blocking import BlockingCalls, call_time_max_s_default, each, threads_max_default
from segment_service.storage.local_files import chunk_name_parts, is_full, missing_is

T = TypeVar("T")

TEMPORARY: Final = ".incoming"
"""Folder below the root for files that are being written; a file is moved to its name when it is complete."""
temporary_age_max: Final = timedelta(hours=1)
"""Age from which a file there belongs to no running put and is removed at the next start."""
_ERRORS: Final = (OSError, ArrowException)
_JVM_OPTIONS: Final = "LIBHDFS_OPTS"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or a folder below the root."""

    name: str
    length: int
    is_folder: bool


class ArrowChunkStorage:
    """A ``ChunkStorage`` in the folder that ``uri`` names, as ``pyarrow.fs.FileSystem.from_uri`` reads it.

    A file is complete before it gets its name. On a local file system it is synced before that, with its folder; on
    others its durability is that of a closed file there. Folders that deletions leave empty stay: Arrow removes folders
    only with what came into them meanwhile.
    """

    def __init__(
        self,
        uri: str,
        *,
        threads_max: int = threads_max_default,
        call_time_max_s: float = call_time_max_s_default,
        clock: Clock | None = None,
    ) -> None:
        self._uri = uri
        self._calls = BlockingCalls("arrow storage", threads_max, call_time_max_s)
        self._clock = clock or SystemClock()
        self._tickets = itertools.count()
        self._incarnation = secrets.token_hex(8)
        self._files: Any = None
        self._root = ""
        self._log = structlog.get_logger(service="arrow-storage")

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
        levels = [iter(await self._entries(prefix[: prefix.rfind("/") + 1], prefix))]
        while levels:
            entry = next(levels[-1], None)
            if entry is None:
                levels.pop()
            elif entry.is_folder:
                levels.append(iter(await self._entries(entry.name, prefix)))
            else:
                yield ChunkInfo(entry.name, entry.length)

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        return await self._calls.delete_all(names, lambda some: each(some, self._delete))

    async def close(self) -> None:
        self._calls.close()

    # -- on the threads of the pool

    def _start(self) -> None:
        if not self._uri.startswith("file:"):
            os.environ.setdefault(_JVM_OPTIONS, "-Xrs")  # a JVM that HDFS needs leaves the signals to this process
        try:
            self._files, root = FileSystem.from_uri(self._uri)
            self._root = root.rstrip("/")
            self._files.create_dir(f"{self._root}/{TEMPORARY}", recursive=True)
            self._remove_stale()  # first: it may make room
            self._probe()
        except _ERRORS as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"Tier-2 URL arrow:{self._uri} cannot be used ({reason}): name a folder that Arrow can write to"
            ) from error

    def _probe(self) -> None:
        """Write a file as puts do. A full disk can be read, and gets room again."""
        probe = self._temporary()
        try:
            self._write(probe, [b"probe"])
        except _ERRORS as error:
            if not is_full(error):
                raise
            self._log.warning("nothing can be put: the file system is full", uri=self._uri, error=str(error))
        self._remove(probe)

    def _remove_stale(self) -> None:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        for found in self._files.get_file_info(FileSelector(f"{self._root}/{TEMPORARY}")):
            if found.mtime is not None and now - found.mtime > temporary_age_max:
                self._remove(found.path)

    def _remove(self, path: str) -> None:
        """Delete a file; another store that starts beside this one may have done so."""
        try:
            self._files.delete_file(path)
        except _ERRORS:  # file systems say in different ways that a file is missing
            if self._files.get_file_info(path).type != FileType.NotFound:
                raise

    def _put(self, name: str, data: Sequence[Buffer]) -> None:
        target = self._path(name)
        with _unavailable(f"chunk {name} could not be written"):
            is_new = self._files.get_file_info(target).type == FileType.NotFound
        check(is_new, "a chunk name was used twice", name=name)
        temporary = self._temporary()
        try:
            with _unavailable(f"chunk {name} could not be written"):
                self._write(temporary, data)
                self._files.create_dir(target.rpartition("/")[0], recursive=True)
            try:
                self._files.move(temporary, target)
                self._sync_folders(target)
            except _ERRORS as error:
                raise UnknownOutcome(f"chunk {name} may not have got its name: {error}") from error
        except BaseException:
            with contextlib.suppress(*_ERRORS):
                self._files.delete_file(temporary)
            raise

    def _write(self, path: str, data: Sequence[Buffer]) -> None:
        with self._files.open_output_stream(path, compression=None) as stream:
            for part in data:
                stream.write(part)
        if self._is_local:
            sync_file(path)

    def _sync_folders(self, target: str) -> None:
        """Sync the folders from the target's up to the root, as any of them may be new."""
        if self._is_local:
            folder = Path(target).parent
            while True:
                sync_folder(folder)
                if folder == Path(self._root) or folder == folder.parent:
                    return
                folder = folder.parent

    @property
    def _is_local(self) -> bool:
        return bool(self._files.type_name == "local")

    def _get(self, name: str, offset: int, length: int) -> bytes:
        with (
            missing_is(name),
            _unavailable(f"chunk {name}"),
            self._files.open_input_file(self._path(name)) as file,
        ):
            size = file.size()
            if offset + length > size:
                raise DataCorruption(f"chunk {name}: bytes {offset}+{length} wanted, it has {size}")
            data = bytes(file.read_at(length, offset)) if length else b""
            while len(data) < length:
                more = file.read_at(length - len(data), offset + len(data))
                if not more:
                    raise DataCorruption(f"chunk {name}: it ended at {offset + len(data)} of {size} bytes")
                data += more
            return data

    def _info(self, name: str) -> ChunkInfo:
        with _unavailable(f"chunk {name}"):
            found = self._files.get_file_info(self._path(name))
        if found.type != FileType.File:
            raise SegmentNotFound(name)
        return ChunkInfo(name, found.size)

    async def _entries(self, folder: str, prefix: str) -> Sequence[_Entry]:
        return await self._calls.run(lambda: self._list_folder(folder, prefix))

    def _list_folder(self, folder: str, prefix: str) -> Sequence[_Entry]:
        """Entries of one folder, given with the ``/`` at its end, which have the prefix."""
        path = f"{self._root}/{folder}".rstrip("/")
        with _unavailable(f"folder {folder!r} cannot be listed"):
            infos = self._files.get_file_info(FileSelector(path, allow_not_found=True))
        found = []
        for info in infos:
            is_folder = info.type == FileType.Directory
            name = f"{folder}{info.base_name}" + ("/" if is_folder else "")
            if name == f"{TEMPORARY}/":
                continue
            if name.startswith(prefix):
                found.append(_Entry(name, 0 if is_folder else info.size, is_folder))
        return sorted(found, key=lambda entry: entry.name)

    def _delete(self, name: str) -> None:
        with _unavailable(f"chunk {name}"), contextlib.suppress(FileNotFoundError):
            path = self._path(name)
            if self._files.get_file_info(path).type != FileType.NotFound:
                self._files.delete_file(path)

    def _path(self, name: str) -> str:
        return "/".join((self._root, *chunk_name_parts(name)))

    def _temporary(self) -> str:
        return f"{self._root}/{TEMPORARY}/{self._incarnation}-{next(self._tickets):x}"


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    """Turn errors of Arrow into ``Unavailable``, but for a missing file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except _ERRORS as error:
        raise Unavailable(f"{what}: {error}") from error
