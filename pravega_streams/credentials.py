"""Gives the credentials of a client: arguments, or files that the environment names. They are never shown."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pravega_common.errors import ConfigurationError

USER: Final = "PRAVEGA_USER"
PASSWORD_FILE: Final = "PRAVEGA_PASSWORD_FILE"
TOKEN_FILE: Final = "PRAVEGA_TOKEN_FILE"
secret_bytes_max: Final = 16 * 1024


class Credentials(Protocol):
    """Proves who a client is."""

    def header(self) -> str:
        """Return the present value of the header ``authorization``; ``ConfigurationError`` if it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class BasicCredentials:
    """A user and a password."""

    user: str
    password: str = field(repr=False)

    def header(self) -> str:
        if ":" in self.user or not self.user:
            raise ConfigurationError(f"user name {self.user!r} must not be empty or have a colon")
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class PasswordFileCredentials:
    """A user, and a file with the password, which is read for every call: another password counts at once."""

    user: str
    file: Path

    def header(self) -> str:
        return BasicCredentials(self.user, _secret(self.file)).header()


@dataclass(frozen=True, slots=True)
class TokenFileCredentials:
    """A file with a bearer token, which is read for every call."""

    file: Path

    def header(self) -> str:
        return f"Bearer {_secret(self.file)}"


def credentials_from(environment: Mapping[str, str] | None = None) -> Credentials | None:
    """The credentials that the environment names: ``PRAVEGA_USER`` with ``PRAVEGA_PASSWORD_FILE``, or
    ``PRAVEGA_TOKEN_FILE``; ``None`` without any. ``ConfigurationError`` for half of them."""
    given = os.environ if environment is None else environment
    user, password, token = (given.get(name, "") for name in (USER, PASSWORD_FILE, TOKEN_FILE))
    if token and (user or password):
        raise ConfigurationError(f"{TOKEN_FILE} is set beside {USER} or {PASSWORD_FILE}: set one kind of credentials")
    if bool(user) != bool(password):
        missing = PASSWORD_FILE if user else USER
        raise ConfigurationError(f"{missing} is not set: {USER} and {PASSWORD_FILE} (a file) go together")
    if token:
        return TokenFileCredentials(Path(token))
    return PasswordFileCredentials(user, Path(password)) if user else None


def _secret(file: Path) -> str:
    """The content of a file without the line's end. Errors name the file and show nothing of it."""
    try:
        with file.open("rb") as opened:
            content = opened.read(secret_bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(f"credentials file {file} cannot be read: {error.strerror}") from error
    text = content.decode("utf-8", "surrogateescape").rstrip("\r\n")
    if not text or len(content) > secret_bytes_max or not text.isprintable():
        raise ConfigurationError(f"credentials file {file} must have one line of 1 to {secret_bytes_max} bytes")
    return text
