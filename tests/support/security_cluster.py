"""Runs a standalone that asks its clients who they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.password_file import HashedPassword, User, write_users
from pravega_spark.standalone.process import StandaloneProcess

PASSWORD: Final = "planted-secret-5c21"
"""Of every user; no log may show it."""


@contextmanager
def authenticating_cluster(
    folder: Path, users: Mapping[str, str], environment: Mapping[str, str] = MappingProxyType({}), **options: object
) -> Iterator[StandaloneProcess]:
    """``users``: their access entries by name. ``environment``: further settings. ``options``: of the process."""
    file, hashed = folder / "users", HashedPassword.of(PASSWORD.encode())
    folder.mkdir(parents=True, exist_ok=True)
    write_users(file, {name: User(name, hashed, AccessEntries.parse(text)) for name, text in users.items()})
    cluster = StandaloneProcess(folder / "cluster", **options)
    try:
        cluster.start(
            {
                "PRAVEGA_CONTROLLER_SECURITY__AUTHENTICATION": "true",
                "PRAVEGA_CONTROLLER_SECURITY__PASSWORD_FILE": str(file),
                "PRAVEGA_SEGMENT_STORE_SECURITY__AUTHENTICATION": "true",
                **environment,
            }
        )
        yield cluster
    except BaseException:
        print(cluster.log_tail())
        raise
    finally:
        cluster.stop()
    logs = [cluster.log_file, *(cluster.folder / "data" / "logs").glob("*.log")]
    shown = [log.name for log in logs if any(secret in log.read_text() for secret in (PASSWORD, hashed.text, "eyJ"))]
    assert not shown, f"a password, a hash or a token is in {shown}"
