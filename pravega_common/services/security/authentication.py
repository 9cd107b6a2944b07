"""Authenticates the callers of an API by HTTP Basic against a password file."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import Counter

from pravega_common.errors import AuthenticationFailed, ConfigurationError, Throttled
from pravega_common.runtime.clock import Clock
from pravega_common.services.audit_log import NOBODY, AuditLog
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.security.password_file import HashedPassword, User, read_users
from pravega_common.services.security.principal import Principal

header_chars_max: Final = 4_096
look_pause_s: Final = 1.0
"""Least time between two looks whether the file has changed."""
failed_try_pause_s: Final = 1.0
"""How long a caller whose credentials are wrong waits for the answer."""
checks_at_once_max: Final = 2
"""Hashes that are made at a time, in threads; each takes 16 MiB and some 40 ms of a core."""
tries_at_once_max: Final = 128
"""Callers whose password is being checked or who wait for a refusal, above which others get an error and try later."""
tries_at_once_per_host_max: Final = 48
"""Callers of one host among these, so that a single host keeps nobody else from logging in."""
noted_changes_max: Final = 1_000
"""Users of one change of the file that the audit log names."""
remembered_max: Final = 1_000
"""Callers whose password need not be hashed again."""

FAILURES: Final = Counter("pravega_controller_authentication_failures", "Calls with missing or wrong credentials")


class PasswordAuthentication:
    """Finds the principal of a header ``Basic …``.

    Follows changes of the file; one that cannot be read changes nothing. Passwords are kept nowhere: who was right is
    remembered by a keyed digest of the header, until the user changes.
    """

    challenge: Final = 'Basic realm="pravega"'

    def __init__(
        self,
        path: Path,
        clock: Clock,
        random_bytes: Callable[[int], bytes] = os.urandom,
        audit: AuditLog | None = None,
    ) -> None:
        """``ConfigurationError`` for a file that cannot be used. ``audit``: where changes of the users are noted."""
        self._audit = audit
        self._path = path
        self._clock = clock
        self._version = _version_of(path)
        self._users: Mapping[str, User] = read_users(path)
        self._looked_s = clock.monotonic_s()
        self._digest_key = random_bytes(32)
        self._nobody = HashedPassword.of(random_bytes(16).hex().encode(), random_bytes)
        self._remembered: OrderedDict[bytes, User] = OrderedDict()
        self._slots = asyncio.Semaphore(checks_at_once_max)
        self._tries = HostCounts("callers", "are being authenticated", tries_at_once_max, tries_at_once_per_host_max)
        self._log = structlog.get_logger(service="authentication")

    async def principal(self, header: str, host: str = "") -> Principal:
        """``AuthenticationFailed`` for missing or wrong credentials, ``Throttled`` while too many are checked, of the
        caller's host or of all."""
        await self._follow_file()
        if not header:
            FAILURES.inc()
            raise AuthenticationFailed("no credentials were given: this cluster asks for a user and a password")
        digest = hmac.digest(self._digest_key, header[: header_chars_max + 1].encode(errors="replace"), "sha256")
        known = self._remembered.get(digest)
        if known is None or self._users.get(known.name) is not known:
            known = await self._checked(header, host)
            self._remembered[digest] = known
            if len(self._remembered) > remembered_max:
                self._remembered.popitem(last=False)
        return Principal(known.name, known.entries)

    async def _checked(self, header: str, host: str) -> User:
        too_many = self._tries.enter(host)
        if too_many:
            raise Throttled(too_many)
        try:
            user = await self._matching(header)
            if user is None:
                FAILURES.inc()
                await self._clock.sleep(failed_try_pause_s)
                raise AuthenticationFailed("the user or the password is wrong")
            return user
        finally:
            self._tries.leave(host)

    async def _matching(self, header: str) -> User | None:
        """The user of the header, if the password is right. An unknown user takes as long as a wrong password."""
        credentials = _parsed(header)
        if credentials is None:
            return None
        name, password = credentials
        user = self._users.get(name)
        hashed = self._nobody if user is None else user.password
        return user if await self._is_right(hashed, password) else None

    async def _is_right(self, hashed: HashedPassword, password: bytes) -> bool:
        """Whether it is the password. A hash is made to its end when its caller goes away, and has its slot until then:
        else those who call and go away would have any number of hashes made."""
        await self._slots.acquire()
        making = asyncio.get_running_loop().run_in_executor(None, hashed.matches, password)
        making.add_done_callback(lambda _: self._slots.release())
        return await asyncio.shield(making)

    async def _follow_file(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < look_pause_s:
            return
        self._looked_s = now_s
        try:
            version = _version_of(self._path)
            if version == self._version:
                return
            found = await asyncio.to_thread(read_users, self._path)
        except ConfigurationError as error:
            self._log.warning("the password file cannot be read: the users stay as they were", error=str(error))
            return
        unchanged = {name: old for name, old in self._users.items() if found.get(name) == old}
        self._note_changes(found)
        self._users, self._version = {**found, **unchanged}, version

    def _note_changes(self, found: Mapping[str, User]) -> None:
        before = self._users
        changes = [f"added {name}" for name in sorted(found.keys() - before.keys())]
        changes += [f"removed {name}" for name in sorted(before.keys() - found.keys())]
        changes += [f"changed {name}" for name in sorted(found.keys() & before.keys()) if found[name] != before[name]]
        if self._audit is not None:
            for change in changes[:noted_changes_max]:
                self._audit.note(who=NOBODY, peer=str(self._path), call="users", subject=change, outcome="OK")


def _version_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigurationError(f"password file {path} cannot be read: {error.strerror}") from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def _parsed(header: str) -> tuple[str, bytes] | None:
    """User and password of a header ``Basic base64(user:password)``; ``None`` for any other."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic" or len(header) > header_chars_max:
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (name.decode("ascii"), password) if colon and password else None
    except (binascii.Error, ValueError):
        return None
