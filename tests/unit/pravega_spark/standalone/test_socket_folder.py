"""The sockets of the standalone's Redis servers are in a folder of the user's own whose path is short enough."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.standalone.socket_folder import address_bytes_max, remove_socket_folder, socket_folder

DEEP = "/".join(["a-folder-of-thirty-characters-.."] * 5)


def binds(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    path.unlink()
    return True


def test_it_is_in_a_data_folder_that_is_not_too_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pravega_spark.standalone.socket_folder.address_bytes_max", len(str(tmp_path)) + 4 + 16)
    folder = socket_folder(tmp_path)
    assert folder == tmp_path.resolve() / "run"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(socket_folder(tmp_path).stat().st_mode) == 0o700
    remove_socket_folder(tmp_path)
    assert folder.is_dir()


def test_it_is_elsewhere_for_a_deep_one_and_always_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    root = tmp_path / DEEP
    folder = socket_folder(root)
    assert folder == socket_folder(root) != socket_folder(root / "other")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(str(folder / "redis-cpo.sock")) <= address_bytes_max
    assert binds(folder / "redis-cpo.sock")
    for one in (root, root / "other"):
        remove_socket_folder(one)
    assert not folder.exists()


def test_what_another_user_laid_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    root = tmp_path / DEEP
    folder = socket_folder(root)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(ConfigurationError, match="is no folder of this user: remove it"):
            socket_folder(root)
    finally:
        folder.unlink()
