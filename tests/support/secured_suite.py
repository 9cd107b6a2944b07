"""Secures the clusters of whole suites, and gives the tests' process and what it starts the means of an operator."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pravega_common.invariants import check
from pravega_streams.controller.address import CA_FILE_VARIABLE
from pravega_streams.credentials import PASSWORD_FILE, USER
from tests.support.security_cluster import OPERATOR, PASSWORD

VARIABLE: Final = "PRAVEGA_TEST_SECURITY"
"""Names what the clusters of whole suites have: ``tls``, ``auth`` or ``auth+tls``; nothing without it."""
KINDS: Final = ("", "tls", "auth", "auth+tls")


def security_of_suite() -> str:
    """One of ``KINDS``."""
    kind = os.environ.get(VARIABLE, "")
    check(kind in KINDS, f"{VARIABLE} is {kind!r}: it may be {', '.join(KINDS[1:])}")
    return kind


@contextmanager
def clients_environment(kind: str) -> Iterator[None]:
    """For one of ``KINDS``, let this process and those that it starts be an operator's, who trusts what ``trust`` got.

    The files are the same for as long as the process lives: what was started with one cluster, such as Spark's JVM,
    goes on with the next.
    """
    values: dict[str, str] = {}
    if "tls" in kind:
        values |= dict.fromkeys((CA_FILE_VARIABLE, "pravega_client_tls_cert_path"), str(_authorities()))
    if "auth" in kind:
        values |= {USER: OPERATOR, PASSWORD_FILE: str(_password_file())}
        basic = {"method": "Basic", "username": OPERATOR, "password": PASSWORD}
        values |= {f"pravega_client_auth_{name}": value for name, value in basic.items()}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def trust(ca_file: str) -> None:
    """Trust a cluster beside all earlier ones."""
    with _authorities().open("a") as file:
        file.write(Path(ca_file).read_text())


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="pravega-secured-suite-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _authorities() -> Path:
    file = _folder() / "authorities.pem"
    file.touch()
    return file


def _password_file() -> Path:
    file = _folder() / "password"
    file.touch(mode=0o600)
    file.write_text(PASSWORD)
    return file
