"""Credentials of Tier 2 in a file: rotated ones count without a restart, and a bad file changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.runtime.clock import SystemClock
from segment_service.storage import s3_credentials
from segment_service.storage.s3_access import S3Access
from segment_service.storage.s3_credentials import CredentialsMissing, credentials_provider


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of credentials, which the machine has nothing else of."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "MINIO_ACCESS_KEY")
    for name in (*names, "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/none")
    monkeypatch.setattr(s3_credentials, "file_period_s", 0.0)
    return path


def write(path: Path, key: str, secret: str = "secret") -> None:
    path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")


def test_rotated_credentials_of_a_file_are_used(file: Path) -> None:
    write(file, "first")
    provider = credentials_provider(S3Access(), SystemClock())
    assert provider.retrieve().access_key == "first"
    write(file, "second", "another")
    found = provider.retrieve()
    assert (found.access_key, found.secret_key) == ("second", "another")


@pytest.mark.parametrize("broken", ["", "no section\n", "[default]\naws_access_key_id = second\n", None])
def test_a_file_that_is_just_written_or_gone_changes_nothing(file: Path, broken: str | None) -> None:
    write(file, "first")
    provider = credentials_provider(S3Access(), SystemClock())
    assert provider.retrieve().access_key == "first"
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    assert provider.retrieve().access_key == "first"
    write(file, "second")
    assert provider.retrieve().access_key == "second"


def test_a_file_without_a_form_at_the_start_is_named_as_missing_credentials(file: Path) -> None:
    file.write_text("no section\n")
    with pytest.raises(CredentialsMissing):
        credentials_provider(S3Access(), SystemClock()).retrieve()


def test_the_file_is_not_read_for_each_call(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_credentials, "file_period_s", 3600.0)
    write(file, "first")
    provider = credentials_provider(S3Access(), SystemClock())
    assert provider.retrieve().access_key == "first"
    write(file, "second")
    assert provider.retrieve().access_key == "first"
