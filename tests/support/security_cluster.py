"""Runs a standalone that asks its clients who they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.password_file import HashedPassword, User, write_users
from pravega_spark.standalone.process import StandaloneProcess

PASSWORD: Final = "planted-secret-5c21"
"""Of every user; no log may show it."""
OPERATOR: Final = "operator"


@contextmanager
def authenticating_cluster(
    folder: Path, users: Mapping[str, str], environment: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> Iterator[StandaloneProcess]:
    """``users``: their access entries by name. ``environment``: further settings. ``options``: of the process."""
    hashed = _write_users(folder / "users", users)
    cluster = StandaloneProcess(folder / "cluster", **options)
    try:
        cluster.start({**_settings(folder / "users"), **environment})
        yield cluster
    except BaseException:
        print(cluster.log_tail())
        raise
    finally:
        cluster.stop()
    logs = [cluster.log_file, *(cluster.folder / "data" / "logs").glob("*.log")]
    shown = [log.name for log in logs if any(secret in log.read_text() for secret in (PASSWORD, hashed.text, "eyJ"))]
    assert not shown, f"a password, a hash or a token is in {shown}"


class AuthenticatingStandalone(StandaloneProcess):
    """A standalone that knows one user, the operator, and asks who its callers are at each of its starts."""

    def start(self, environment: dict[str, str] | None = None) -> None:
        users = self.folder.parent / f"{self.folder.name}-users"
        if not users.exists():
            _write_users(users, {OPERATOR: "prn::*,READ_UPDATE"})
        super().start({**_settings(users), **(environment or {})})


def _write_users(file: Path, users: Mapping[str, str]) -> HashedPassword:
    """Write a file of users, all with the one password, and return its hash."""
    hashed = HashedPassword.of(PASSWORD.encode())
    file.parent.mkdir(parents=True, exist_ok=True)
    write_users(file, {name: User(name, hashed, AccessEntries.parse(text)) for name, text in users.items()})
    return hashed


def _settings(users: Path) -> dict[str, str]:
    """What makes services ask for the users of a file."""
    return {
        "PRAVEGA_CONTROLLER_SECURITY__AUTHENTICATION": "true",
        "PRAVEGA_CONTROLLER_SECURITY__PASSWORD_FILE": str(users),
        "PRAVEGA_SEGMENT_STORE_SECURITY__AUTHENTICATION": "true",
    }
