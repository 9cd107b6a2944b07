"""The environment of a secured suite is an operator's for as long as a cluster runs, and the old one afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pravega_common.invariants import InvariantViolation
from pravega_streams.credentials import credentials_from
from tests.support.secured_suite import KINDS, VARIABLE, clients_environment, security_of_suite, trust

NAMES = ("PRAVEGA_USER", "PRAVEGA_PASSWORD_FILE", "PRAVEGA_CA_FILE", "pravega_client_auth_method")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_there_inside_and_gone_after(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_CA_FILE", "of somebody")
    with clients_environment(kind):
        assert (credentials_from() is not None) is ("auth" in kind)
        assert (os.environ["PRAVEGA_CA_FILE"] != "of somebody") is ("tls" in kind)
    assert credentials_from() is None
    assert os.environ["PRAVEGA_CA_FILE"] == "of somebody"
    assert "pravega_client_auth_method" not in os.environ


def test_the_files_are_those_of_the_process(tmp_path: Path) -> None:
    """Spark's JVM keeps the environment of its start, and has to trust clusters that come later."""
    seen = []
    for name in ("first", "second"):
        with clients_environment("auth+tls"):
            (tmp_path / name).write_text(f"{name}\n")
            trust(str(tmp_path / name))
            seen.append([os.environ[variable] for variable in NAMES])
            trusted = Path(os.environ["PRAVEGA_CA_FILE"]).read_text()
    assert seen[0] == seen[1]
    assert "first\n" in trusted and "second\n" in trusted


def test_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all")
    with pytest.raises(InvariantViolation, match="auth\\+tls"):
        security_of_suite()
