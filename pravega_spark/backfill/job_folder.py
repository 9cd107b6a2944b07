"""Keeps a job's record: small JSON files that are made once, on any file system that Spark can write."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pravega_common.errors import ConfigurationError, DataCorruption
from pravega_common.logins import without_login_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCK: Final = ".lock"
"""A file of the folder that is locked (``flock``, which ends with the process) while a job runs; it has its process."""


class JobFolder:
    """The folder of a job on any of Hadoop's file systems, through the driver's JVM."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """Makes the folder. ``ConfigurationError`` if it cannot be made."""
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self.path = folder.rstrip("/")
        self._configuration: Any = context._jsc.hadoopConfiguration()
        try:
            root = self._path(self.path)
            self._files: Any = root.getFileSystem(self._configuration)
            is_there = bool(self._files.mkdirs(root))
        except Exception as error:  # Py4J's, of any of Java's classes.
            why = f"the folder '{folder}' cannot be made or written: {_first_line(error)}"
            raise ConfigurationError(without_login_of(folder, why)) from error
        if not is_there:
            raise ConfigurationError(f"the folder '{folder}' cannot be made; is the one above it writable?")

    @contextmanager
    def run_alone(self, job_id: str) -> Iterator[None]:
        """Keeps other runs of the job away while this one lasts: ``ConfigurationError`` if there is one.

        Two would overwrite each other's records, and delete each other's files. Other file systems than a local one
        have no locks: there two runs at once are not noticed here.
        """
        if str(self._files.getUri().getScheme()) != "file":
            yield
            return
        path = Path(str(self._path(self.path).toUri().getPath())) / LOCK
        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                raise ConfigurationError(
                    f"another run of job '{job_id}', process {lock.read().strip() or 'unknown'}, is active in "
                    f"{self.path}: wait until it ends, or stop it, and run the job again to go on"
                ) from error
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # Some mounts of a network have no locks.
                    raise
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def read(self, name: str) -> dict[str, Any] | None:
        """Reads a file; None while it does not exist."""
        text = self.read_text(name)
        if text is None:
            return None
        try:
            made: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise DataCorruption(f"{self.path}/{name} is damaged: {error}") from error
        return made

    def read_text(self, name: str) -> str | None:
        """Reads a file as text; None while it does not exist."""
        path = self._path(f"{self.path}/{name}")
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, name: str, content: dict[str, Any]) -> None:
        """Creates a file whole or not at all: it is written under another name and renamed.

        A folder in its name is made too.
        """
        above, _, last = f"{self.path}/{name}".rpartition("/")
        self._files.mkdirs(self._path(above))
        temporary = self._path(f"{above}/.{last}.{uuid.uuid4().hex}")
        stream = self._files.create(temporary, True)
        try:
            stream.write(bytearray(json.dumps(content, indent=1).encode()))
            stream.hsync()
        finally:
            stream.close()
        self._rename(temporary, self._path(f"{self.path}/{name}"))

    def exists(self, path: str) -> bool:
        """Tells whether a path exists, on any file system; it is absolute, as in the methods below."""
        found = self._path(path)
        return bool(found.getFileSystem(self._configuration).exists(found))

    def is_file(self, path: str) -> bool:
        """Tells whether the path names a file, on any file system; False for a pattern."""
        try:
            found = self._path(path)
            files = found.getFileSystem(self._configuration)
            return bool(files.exists(found) and files.getFileStatus(found).isFile())
        except Exception as error:  # Py4J's, of any of Java's classes.
            raise ConfigurationError(f"'{path}' cannot be looked at: {_first_line(error)}") from error

    def files(self, path: str) -> list[tuple[str, int]]:
        """Lists names and sizes of the files below a folder that readers of the folder see, sorted.

        A name has the folders of its partitions before it (``day=2026-07-01/part-0``). Readers do not see names that
        begin with a dot or an underscore.
        """
        found: list[tuple[str, int]] = []
        left = [""]
        while left:
            prefix = left.pop()
            for item in self._files.listStatus(self._path(f"{path}/{prefix}")):
                name = str(item.getPath().getName())
                if name.startswith((".", "_")) and "=" not in name:
                    continue
                if item.isDirectory():
                    left.append(f"{prefix}{name}/")
                else:
                    found.append((f"{prefix}{name}", int(item.getLen())))
        return sorted(found)

    def folders(self, path: str) -> list[str]:
        """Lists the names of the folders in a folder."""
        return sorted(
            item.getPath().getName() for item in self._files.listStatus(self._path(path)) if item.isDirectory()
        )

    def make(self, path: str) -> None:
        """Makes a folder and those above it, where they are missing."""
        if not self._files.mkdirs(self._path(path)):
            raise ConfigurationError(f"the folder '{path}' cannot be made; is the one above it writable?")

    def move(self, source: str, target: str) -> None:
        """Moves a file into a folder that is there; a file that an earlier call moved stays where it is.

        Object stores copy and delete: a call that was cut off between leaves both, and is made again.
        """
        if not self.exists(source):
            if not self.exists(target):
                raise DataCorruption(f"neither {source} nor {target} is there, though one was written; who deleted it?")
            return
        if self.exists(target) and self._size(target) == self._size(source):
            self.delete(target)
        self._rename(self._path(source), self._path(target))

    def _size(self, path: str) -> int:
        return int(self._files.getFileStatus(self._path(path)).getLen())

    def delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def _rename(self, source: Any, target: Any) -> None:
        if not self._files.rename(source, target):
            raise ConfigurationError(f"{source} cannot be renamed to {target}; is the folder writable?")

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java if java is not None else error).splitlines()[0]
