"""Defines how a service logs in to its Redis servers: user, password, and the authorities that it trusts.

Secrets come from a file or from the environment. They are part of no address, so that an address may be registered,
logged and shown.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.client_tls import SYSTEM_TRUST, ClientTls
from pravega_common.services.settings import TLS_REDIS_SCHEME, Section, host_and_port


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """A login, and the trust in servers that speak TLS. Without a password nobody logs in."""

    username: str = ""
    password: SecretStr = field(default_factory=lambda: SecretStr(""))
    tls: ClientTls = SYSTEM_TRUST

    @property
    def credentials(self) -> tuple[str, ...]:
        """The arguments of ``AUTH``; empty for no login."""
        password = self.password.get_secret_value()
        if not password:
            return ()
        return (self.username, password) if self.username else (password,)

    @property
    def is_of_default_user(self) -> bool:
        """Whether connections have the permissions of the server's default user."""
        return self.username in ("", "default")

    def describe(self) -> str:
        """Names the user, for an error."""
        return f"user '{self.username}'" if self.username else "the default user"


OPEN_ACCESS: Final = RedisAccess()


@dataclass(frozen=True, slots=True)
class RedisEndpoint:
    """The parts of ``host:port`` or ``rediss://host:port``."""

    host: str
    port: int
    has_tls: bool

    @classmethod
    def parse(cls, address: str) -> RedisEndpoint:
        host, port = host_and_port(address.removeprefix(TLS_REDIS_SCHEME))
        return cls(host, port, address.startswith(TLS_REDIS_SCHEME))


class RedisSection(Section):
    """The login at all Redis servers of a service, and who signed the certificates of those that speak TLS."""

    username: str = ""
    password: SecretStr = SecretStr("")
    password_file: str = ""
    ca_file: str = ""

    def problems(self) -> list[str]:
        """Lists the settings that contradict each other."""
        has_password = bool(self.password.get_secret_value())
        if has_password and self.password_file:
            return ["redis.password and redis.password_file: set one of them"]
        if self.username and not has_password and not self.password_file:
            return [
                "redis.username is set without a password: set redis.password_file, or redis.password by environment"
            ]
        return []

    def access(self) -> RedisAccess:
        """Read the files. ``ConfigurationError`` for one that cannot be used."""
        password = _password_of(Path(self.password_file)) if self.password_file else self.password
        return RedisAccess(self.username, password, ClientTls.from_file(self.ca_file))


def _password_of(file: Path) -> SecretStr:
    try:
        mode, text = file.stat().st_mode, file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigurationError(f"redis.password_file = '{file}': {reason}") from None
    if mode & stat.S_IRWXO:
        raise ConfigurationError(
            f"redis.password_file = '{file}' has mode {stat.S_IMODE(mode):04o}, all may read it: chmod 600 '{file}'"
        )
    if not text.strip():
        raise ConfigurationError(f"redis.password_file = '{file}' is empty")
    return SecretStr(text.strip())
