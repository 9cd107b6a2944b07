"""Reads the keys of a cluster from a file, and makes such a file."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.invariants import check
from pravega_common.services.private_files import replace_file

key_bytes_min: Final = 32
key_bytes_made: Final = 64
"""As many as the digests of HS512 have."""
keys_max: Final = 16
"""Keys of one file: a rotation needs two."""
file_bytes_max: Final = 64 * 1024
_KEY_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")
_HEADER: Final = (
    "# Keys of a pravega-spark cluster: each opens everything. One key a line: id, space, base64 of 32\n"
    "# random bytes or more. The first signs, all of them verify (docs/security.md).\n"
)


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The keys by their ids. The first one signs, all of them verify, so that a key can be replaced without a stop."""

    by_id: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        check(0 < len(self.by_id) <= keys_max, "a cluster without keys, or with too many", keys=len(self.by_id))

    @property
    def signing_id(self) -> str:
        return next(iter(self.by_id))

    @property
    def signing_key(self) -> bytes:
        return self.by_id[self.signing_id]

    @classmethod
    def read(cls, path: Path) -> ClusterKeys:
        """The keys of a file. ``ConfigurationError`` for one that others may read, and for one that is malformed; the
        error never shows a part of a key."""
        try:
            with path.open("rb") as file:
                _check_private(path, os.fstat(file.fileno()))
                content = file.read(file_bytes_max + 1)
        except OSError as error:
            raise ConfigurationError(f"cluster key file {path} cannot be read: {error.strerror}") from error
        if len(content) > file_bytes_max:
            raise ConfigurationError(f"cluster key file {path} has more than {file_bytes_max} bytes")
        found: dict[str, bytes] = {}
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                key_id, key = _parsed(path, number, line)
                if key_id in found:
                    raise ConfigurationError(f"{path}: line {number} gives the key id {key_id} a second time")
                found[key_id] = key
        if not 0 < len(found) <= keys_max:
            raise ConfigurationError(f"{path} has {len(found)} keys; it must have 1 to {keys_max}")
        return cls(found)


def make_key_file(path: Path, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
    """Write a file with one new key, which only its owner may read; one that is there stays as it is."""
    if path.exists():
        return
    line = f"key-1 {base64.b64encode(random_bytes(key_bytes_made)).decode()}\n"
    replace_file(path, (_HEADER + line).encode())


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"cluster key file {path} is no regular file")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigurationError(
            f"cluster key file {path} has mode {mode:04o}: others may read it; run chmod 600 {path}"
        )


def _parsed(path: Path, number: int, line: str) -> tuple[str, bytes]:
    key_id, _, text = line.strip().partition(" ")
    if _KEY_ID.fullmatch(key_id) is None or not text:
        raise ConfigurationError(f"{path}: line {number} is not a key id (letters, digits, '.', '_', '-') and a key")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        # Not chained, as the original error may show the key.
        raise ConfigurationError(f"{path}: the key {key_id} of line {number} is not base64") from None
    if len(key) < key_bytes_min:
        raise ConfigurationError(f"{path}: the key {key_id} has {len(key)} bytes; it must have {key_bytes_min} or more")
    return key_id, key
