"""Keeps the secret of a sink with the checkpoint of its query, where every later run finds it.

The controller is shown a value that is derived from it for each sink, and keeps a hash of that
(``controller_service/sets/sink_secrets.py``). So what one controller saw is of no use for a sink elsewhere.

The file is one line: its name, its version, the secret in hex, and the CRC-32 of these three.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import uuid
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pravega_common.errors import ConfigurationError
from pravega_common.logins import without_login_of
from pravega_common.model.transaction_sets import Sink, is_unnamed_write, sink_secret_bytes
from pravega_common.runtime.synced_files import sync_folder
from pravega_spark.options.write_options import WriteOptions

_log = logging.getLogger(__name__)

FILE_NAME: Final = "pravega-sink-secret"
format_version: Final = 1
file_bytes_max: Final = 256
_METADATA: Final = "metadata"
"""The file with the query's id, which Spark writes into a checkpoint before it plans the first batch."""
checkpoints_known_max: Final = 1_000
_known: set[str] = set()
"""Checkpoints in which this process found a secret. Which one it was is not kept: a worker outlives queries, and the
checkpoint at a path may be another one by the next batch."""
file_systems_kept_max: Final = 16


@dataclass(frozen=True, slots=True)
class SinkSecret:
    """A secret, or none. Pickled to the executors with the writer."""

    value: bytes = field(default=b"", repr=False)

    def sink(self, query_id: str, destination: str) -> Sink:
        """The sink of a query, with the proof that the caller may speak for it."""
        if not self.value:
            return Sink(query_id, destination)
        name = f"{len(query_id)}:{query_id}:{destination}".encode()
        return Sink(query_id, destination, hmac.digest(self.value, name, hashlib.sha256))

    @classmethod
    def new(cls) -> SinkSecret:
        return cls(secrets.token_bytes(sink_secret_bytes))

    def to_line(self) -> bytes:
        """The content of the file."""
        text = f"{FILE_NAME} {format_version} {self.value.hex()}"
        return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()

    @classmethod
    def parse(cls, content: bytes, path: str) -> SinkSecret:
        """``ConfigurationError`` for what is no such line; it shows nothing of it."""
        path = without_login_of(path, path)
        name, version, value, checksum = (*content.decode("ascii", "replace").split(), "", "", "", "")[:4]
        if name == FILE_NAME and version.isdecimal() and int(version) > format_version:
            raise ConfigurationError(f"{path} was written by a newer version of pravega-spark: update this one")
        text = f"{name} {version} {value}"
        is_whole = checksum == f"{zlib.crc32(text.encode()):08x}" and len(value) == 2 * sink_secret_bytes
        if name != FILE_NAME or not is_whole:
            raise ConfigurationError(
                f"{path} is damaged, or no secret of a sink: restore it; or remove it, and let an operator say "
                "pravega-spark sink forget QUERY --secret-only"
            )
        return cls(bytes.fromhex(value))


NO_SECRET: Final = SinkSecret()


def secret_of_query(options: WriteOptions) -> SinkSecret:
    """The secret of a streaming sink: from ``sink_secret_file``, else from its checkpoint; made if it is missing.

    ``NO_SECRET`` where the checkpoint is not known here (Spark's setting ``spark.sql.streaming.checkpointLocation``
    does not reach a sink) or cannot be reached from Python. ``ConfigurationError`` for a file that cannot be used, and
    for a checkpoint that was reached before.
    """
    if options.sink_secret_file:
        return _kept_in(options.sink_secret_file)
    if not options.checkpointlocation:
        return NO_SECRET
    folder = options.checkpointlocation.rstrip("/")
    try:
        found = _kept_with(folder)
        reason = "there is no checkpoint for this process"
    except (OSError, ValueError, ImportError) as error:
        found, reason = None, without_login_of(folder, str(error))
    if found is not None:
        if len(_known) < checkpoints_known_max:
            _known.add(folder)
        return found
    shown = without_login_of(folder, folder)
    if folder in _known:  # Without its secret the sink would be refused, and an operator told that the secret is lost.
        raise ConfigurationError(f"the secret of the sink cannot be read in {shown} any more: {reason}")
    _log.info("the sink has no secret, since %s cannot be used from Python: %s", shown, reason)
    return NO_SECRET


def secret_of_write(options: WriteOptions, name: str) -> SinkSecret:
    """The secret of a batch write: of an unnamed one a new one, of another that of ``sink_secret_file`` if given."""
    if is_unnamed_write(name):
        return SinkSecret.new()
    return _kept_in(options.sink_secret_file) if options.sink_secret_file else NO_SECRET


def _kept_with(folder: str) -> SinkSecret | None:
    """The secret in a checkpoint, made if it is missing; None if no checkpoint is there.

    It takes one read, for each batch that is planned and for each that is committed, once the file is there.
    """
    files, root = _opened(folder)
    path = f"{folder}/{FILE_NAME}"
    content = _read(files, f"{root}/{FILE_NAME}")
    if content is not None:
        return SinkSecret.parse(content, path)
    return None if _read(files, f"{root}/{_METADATA}") is None else _kept_in(path)


def _kept_in(path: str) -> SinkSecret:
    """The secret in a file; a new one if there is no file."""
    try:
        files, inner = _opened(path)
        content = _read(files, inner)
        if content is None:
            _write(files, inner, SinkSecret.new().to_line())
            content = _read(files, inner)
    except (OSError, ValueError, ImportError) as error:
        why = f"the secret of the sink cannot be kept in {path}: {error}"
        raise ConfigurationError(without_login_of(path, why)) from None  # The error shows the whole URI.
    return SinkSecret.parse(content or b"", path)


def _opened(path: str) -> tuple[Any, str]:
    """The file system of a path or URI (None: the local one), and the path in it."""
    scheme, separator, rest = path.partition(":")
    if not separator or "/" in scheme:
        return None, str(Path(path).absolute())
    if scheme == "file":
        return None, f"/{rest.lstrip('/')}"
    return _connected(f"s3:{rest}" if scheme in ("s3a", "s3n") else path)


@lru_cache(file_systems_kept_max)
def _connected(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in it. Kept: a new one looks for region and credentials again."""
    from pyarrow import fs  # Only for a checkpoint that is not local: it takes a while to import.

    opened: tuple[Any, str] = fs.FileSystem.from_uri(uri)
    return opened


def _read(files: Any, path: str) -> bytes | None:
    """The first bytes of a file; None without a file."""
    try:
        with open(path, "rb") if files is None else files.open_input_stream(path) as stream:
            return bytes(stream.read(file_bytes_max))
    except FileNotFoundError:
        return None


def _write(files: Any, path: str, content: bytes) -> None:
    """Write a new file, durably. A local one that another process has made meanwhile stays."""
    if files is not None:
        with files.open_output_stream(path) as stream:
            stream.write(content)
        return
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        sync_folder(os.path.dirname(path))
    finally:
        Path(temporary).unlink(missing_ok=True)
