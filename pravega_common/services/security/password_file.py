"""Reads, checks and changes the file with the users of a cluster, their hashed passwords and their access entries.

One user a line: ``name:scrypt$<log2 n>$<r>$<p>$<salt>$<hash>:<access entries>``, salt and hash in base64.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.services.private_files import replace_file
from pravega_common.services.security.access_entries import AccessEntries

log2_n: Final = 14
r: Final = 8
p: Final = 1
"""Cost of a hash: 16 MiB, and some 40 ms of one core."""
scrypt_bytes_max: Final = 64 * 1024 * 1024
"""Memory that the cost given in a file may ask for."""
salt_bytes: Final = 16
hash_bytes: Final = 32
password_bytes_max: Final = 1_024
users_max: Final = 10_000
file_bytes_max: Final = 8 * 1024 * 1024
_USER_NAME = re.compile(r"[A-Za-z0-9._@\-]{1,128}")


@dataclass(frozen=True, slots=True)
class HashedPassword:
    """A password as scrypt made it unreadable."""

    text: str = field(repr=False)

    @classmethod
    def of(cls, password: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> HashedPassword:
        """``ConfigurationError`` for an empty password and for one that is too long."""
        if not 0 < len(password) <= password_bytes_max:
            raise ConfigurationError(f"a password of {len(password)} bytes; it must have 1 to {password_bytes_max}")
        salt = random_bytes(salt_bytes)
        made = _scrypt(password, salt, log2_n, r, p)
        return cls(f"scrypt${log2_n}${r}${p}${_text(salt)}${_text(made)}")

    def __post_init__(self) -> None:
        self._parts()

    def matches(self, password: bytes) -> bool:
        """Whether it is the password; takes as long for any of them."""
        cost, salt, known = self._parts()
        return hmac.compare_digest(_scrypt(password[: password_bytes_max + 1], salt, *cost), known)

    def _parts(self) -> tuple[tuple[int, int, int], bytes, bytes]:
        """The cost, the salt and the hash; ``ConfigurationError``, which shows none of them, if it is malformed."""
        try:
            kind, *numbers, salt, known = self.text.split("$")
            n, blocks, lanes = map(int, numbers)
            is_known = kind == "scrypt" and 10 <= n <= 20 and blocks >= 1 and 1 <= lanes <= 16
            if is_known and 128 * blocks * (1 << n) <= scrypt_bytes_max:
                return (n, blocks, lanes), base64.b64decode(salt, validate=True), base64.b64decode(known, validate=True)
        except (ValueError, binascii.Error):
            pass
        raise ConfigurationError("is not scrypt$<log2 n>$<r>$<p>$<salt>$<hash>, or costs too much") from None


@dataclass(frozen=True, slots=True)
class User:
    """A user of the cluster. ``entries``: what the user may do."""

    name: str
    password: HashedPassword
    entries: AccessEntries


def read_users(path: Path) -> Mapping[str, User]:
    """The users of a file by name. ``ConfigurationError`` for one that others may write or read, or that is malformed;
    it names the line and shows no hash."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(file_bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(f"password file {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"password file {path} has mode {mode:04o}: others may read it; run chmod 600 {path}")
    if len(content) > file_bytes_max:
        raise ConfigurationError(f"password file {path} has more than {file_bytes_max} bytes")
    users: dict[str, User] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            user = _user(path, number, line)
            if user.name in users:
                raise ConfigurationError(f"{path}: line {number} gives the user {user.name} a second time")
            users[user.name] = user
    if len(users) > users_max:
        raise ConfigurationError(f"{path} has {len(users)} users; the limit is {users_max}")
    return users


_HEADER: Final = "# Users of a pravega-spark cluster; changed by: pravega-spark user\n"


@contextlib.contextmanager
def changing_users(path: Path) -> Iterator[dict[str, User]]:
    """The users of the file, empty without a file, to be changed; they are written at the end, unless an error ends
    it. One change at a time: a lock on the folder keeps others waiting, so nobody is asked anything inside."""
    try:
        folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"password file {path} cannot be changed: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        users = dict(read_users(path)) if path.exists() else {}
        yield users
        write_users(path, users)
    finally:
        os.close(folder)


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Replace the file in one step; only its owner may read it."""
    lines = [f"{user.name}:{user.password.text}:{user.entries}\n" for user in users.values()]
    replace_file(path, (_HEADER + "".join(lines)).encode())


def checked_user_name(name: str) -> str:
    if _USER_NAME.fullmatch(name) is None:
        raise ConfigurationError(f"user name {name[:80]!r} may have 1 to 128 letters, digits, '.', '_', '@' and '-'")
    return name


def _user(path: Path, number: int, line: str) -> User:
    name, _, rest = line.strip().partition(":")
    hashed, _, entries = rest.partition(":")
    try:
        return User(checked_user_name(name), HashedPassword(hashed), AccessEntries.parse(entries))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: line {number}: {error}") from None


def _scrypt(password: bytes, salt: bytes, cost_log2: int, blocks: int, lanes: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost_log2, r=blocks, p=lanes, maxmem=2 * scrypt_bytes_max, dklen=hash_bytes
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
