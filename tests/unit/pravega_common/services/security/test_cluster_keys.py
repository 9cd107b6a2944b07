"""Key files: what is read, what is refused, and that no error shows a key."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.security.cluster_keys import ClusterKeys, file_bytes_max, make_key_file

FIRST, SECOND = bytes(range(64)), bytes(range(100, 132))


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def written(folder: Path, content: str, mode: int = 0o600) -> Path:
    path = folder / "cluster.keys"
    path.write_text(content)
    path.chmod(mode)
    return path


def test_the_first_key_signs_and_all_are_known(tmp_path: Path) -> None:
    keys = ClusterKeys.read(written(tmp_path, f"# comment\n\nnew {text(FIRST)}\nold {text(SECOND)}\n"))
    assert (keys.signing_id, keys.signing_key) == ("new", FIRST)
    assert keys.by_id == {"new": FIRST, "old": SECOND}
    assert text(FIRST) not in repr(keys) and repr(FIRST) not in repr(keys)


def test_a_made_file_is_only_its_owners_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "cluster.keys"
    previous = os.umask(0)
    try:
        make_key_file(path)
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o600
    made = ClusterKeys.read(path)
    assert len(made.signing_key) == 64
    make_key_file(path)
    assert ClusterKeys.read(path) == made
    make_key_file(tmp_path / "other")
    assert ClusterKeys.read(tmp_path / "other") != made


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match=f"mode {mode:04o}.*chmod 600"):
        ClusterKeys.read(written(tmp_path, f"k {text(FIRST)}", mode))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "0 keys"),
        (f"k {text(FIRST[:31])}", "31 bytes"),
        (f"k {text(FIRST)}\nk {text(SECOND)}", "a second time"),
        (text(FIRST), "is not a key id"),
        (f"k {text(FIRST)[:-3]}!!!", "is not base64"),
        ("\n".join(f"k{number} {text(FIRST)}" for number in range(17)), "17 keys"),
        ("#" * (file_bytes_max + 1), "more than"),
    ],
)
def test_a_malformed_file_is_refused_without_its_keys(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        ClusterKeys.read(written(tmp_path, content))
    assert text(FIRST)[:20] not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ClusterKeys.read(tmp_path / "missing")
    with pytest.raises(ConfigurationError):
        ClusterKeys.read(tmp_path)
