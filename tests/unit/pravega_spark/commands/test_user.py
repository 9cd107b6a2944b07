"""Users are added, listed and removed; passwords come from a prompt, a file or a pipe, and are never shown."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pravega_common.errors import NotFound
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.password_file import HashedPassword, User, changing_users, read_users
from pravega_spark.application import make_application
from pravega_spark.commands import user

SECRET = "planted-secret-90b1"
ACCESS = "prn::/scope:s/stream:t,READ"


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(make_application(["user"]), ["user", *words], input=given)


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    file, password = tmp_path / "users", tmp_path / "password"
    password.write_text(f"{SECRET}\n")
    at = ["--file", str(file)]
    assert run("add", "alice", *at, "--access", ACCESS, "--password-file", str(password)).exit_code == 0
    assert run("add", "bob", *at, "--password-file", "-", given="other\n").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    users = read_users(file)
    assert users["alice"].password.matches(SECRET.encode()) and users["bob"].password.matches(b"other")
    assert run("add", "alice", *at, "--password-file", "-", given="newer").exit_code == 0
    changed = read_users(file)["alice"]
    assert changed.password.matches(b"newer") and str(changed.entries) == ACCESS
    listed = run("list", *at, "--json")
    assert json.loads(listed.stdout) == [{"name": "alice", "access": ACCESS}, {"name": "bob", "access": ""}]
    assert run("remove", "alice", *at, "--yes").exit_code == 0
    assert list(read_users(file)) == ["bob"]
    assert SECRET not in file.read_text() + listed.output + run("list", *at).output


def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users"
    at = ["--file", str(file)]
    run("add", "alice", *at, "--password-file", "-", given=SECRET)
    before = file.read_text()
    for words, given in (
        (["add", "a:b", *at, "--password-file", "-"], "x"),
        (["add", "bob", *at, "--password-file", "-"], ""),
        (["add", "bob", *at, "--password-file", "-"], "x" * 2_000),
        (["add", "bob", *at], None),
        (["add", "bob", *at, "--access", "everything", "--password-file", "-"], "x"),
        (["remove", "nobody", *at, "--yes"], None),
        (["remove", "alice", *at], None),
    ):
        done = run(*words, given=given)
        assert done.exit_code == 1 and SECRET not in f"{done.output}{done.exception!r}"
    assert file.read_text() == before


def test_a_change_while_somebody_is_asked_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom another administrator removed meanwhile came back with the table that was read before."""
    file = tmp_path / "users"
    at = ["--file", str(file)]
    for name in ("alice", "mallory"):
        run("add", name, *at, "--password-file", "-", given=SECRET)

    def asked(name: str, password_file: Path | None) -> bytes:
        assert run("remove", "mallory", *at, "--yes").exit_code == 0
        return b"newer"

    monkeypatch.setattr(user, "_password", asked)
    assert run("add", "bob", *at).exit_code == 0
    assert list(read_users(file)) == ["alice", "bob"]
    monkeypatch.undo()
    monkeypatch.setattr(user, "confirm", lambda *args, **kwargs: run("remove", "bob", *at, "--yes"))
    refused = run("remove", "bob", *at)
    assert refused.exit_code == 1 and isinstance(refused.exception, NotFound)
    assert list(read_users(file)) == ["alice"]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "users"
    password = HashedPassword.of(b"x")

    def add(number: int) -> None:
        with changing_users(file) as users:
            users[f"user-{number}"] = User(f"user-{number}", password, AccessEntries.parse(""))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(read_users(file)) == 40
