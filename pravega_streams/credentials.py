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
origins_max: Final = 100
"""Origins of shipped credentials whose newest value a process remembers."""
_newest: dict[str, str] = {}
"""By origin."""


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
class BearerCredentials:
    """A bearer token, as an identity provider gives it out."""

    token: str = field(repr=False)

    def header(self) -> str:
        return f"Bearer {self.token}"


@dataclass(frozen=True, slots=True)
class TokenFileCredentials:
    """A file with a bearer token, which is read for every call."""

    file: Path

    def header(self) -> str:
        return f"Bearer {_secret(self.file)}"


@dataclass(frozen=True, slots=True)
class ShippedCredentials:
    """Credentials that another process read, such as a Spark driver for its executors.

    Two of one ``origin`` are equal, whatever they hold: they are the same credentials at different times. Clients that
    were made with older ones show the newest that their process knows, once ``renew`` was called.
    """

    origin: str
    """The cluster, and the user or the file with a token; errors may name it, it is no secret."""
    value: str = field(repr=False, compare=False)

    def header(self) -> str:
        return _newest.get(self.origin, self.value)

    def renew(self) -> None:
        """Have all clients of this process that were made with credentials of this origin show these from now on."""
        if len(_newest) >= origins_max:
            _newest.clear()
        _newest[self.origin] = self.value


@dataclass(frozen=True, slots=True)
class SharedCredentials:
    """Credentials that other processes get from this one: pickled they are ``ShippedCredentials`` of that moment.

    Those of one user from two files are not equal: a process keeps its connections by them, and one file may be wrong.
    """

    origin: str
    source: Credentials = field(repr=False)

    @classmethod
    def of(cls, source: Credentials, cluster: str) -> SharedCredentials:
        """``ConfigurationError`` for credentials that are missing already."""
        source.header()
        match source:
            case BasicCredentials(user=user) | PasswordFileCredentials(user=user):
                who = f"user {user}"
            case TokenFileCredentials(file=file):
                who = f"token of {file}"
            case _:
                who = type(source).__name__
        return cls(f"{who} at {cluster}", source)

    def header(self) -> str:
        return self.source.header()

    def __reduce__(self) -> tuple[type[ShippedCredentials], tuple[str, str]]:
        return ShippedCredentials, (self.origin, self.header())


def credentials_of(user: str, password_file: str | Path, token_file: str | Path) -> Credentials | None:
    """The credentials that files hold, each given or empty; ``ConfigurationError`` for half of them, or for both."""
    return _chosen(user, str(password_file), str(token_file), ("user", "password_file", "token_file"))


def credentials_from(environment: Mapping[str, str] | None = None) -> Credentials | None:
    """The credentials that the environment names: ``PRAVEGA_USER`` with ``PRAVEGA_PASSWORD_FILE``, or
    ``PRAVEGA_TOKEN_FILE``; ``None`` without any. ``ConfigurationError`` for half of them."""
    given = os.environ if environment is None else environment
    user, password, token = (given.get(name, "") for name in (USER, PASSWORD_FILE, TOKEN_FILE))
    return _chosen(user, password, token, (USER, PASSWORD_FILE, TOKEN_FILE))


def _chosen(user: str, password: str, token: str, names: tuple[str, str, str]) -> Credentials | None:
    if token and (user or password):
        raise ConfigurationError(f"{names[2]} is set beside {names[0]} or {names[1]}: set one kind of credentials")
    if bool(user) != bool(password):
        missing = names[1] if user else names[0]
        raise ConfigurationError(f"{missing} is not set: {names[0]} and {names[1]} (a file) go together")
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
