"""A start beside other stores, whose temporary files come and go in the directory."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from segment_service.storage.filesystem import TEMPORARY, FilesystemChunkStorage, temporary_age_max_s


async def test_a_file_that_goes_while_it_is_looked_at_is_no_error(tmp_path: Path) -> None:
    """Two stores that start together see each other's probes, and one of them was refused."""
    incoming = tmp_path / TEMPORARY
    incoming.mkdir()
    (incoming / "0-gone").symlink_to(tmp_path / "nothing")  # listed, and not there when it is asked for
    old, fresh = incoming / "1-old", incoming / "2-fresh"
    for file in (old, fresh):
        file.write_bytes(b"x")
    past_s = time.time() - temporary_age_max_s - 60
    os.utime(old, (past_s, past_s))
    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    assert not old.exists()
    assert fresh.exists()
    await storage.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The error that writes end with, if there is one in the list."""
    errors: list[int] = []
    written = os.writev

    def writev(descriptor: int, views: list[memoryview]) -> int:
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))
        return written(descriptor, views)

    monkeypatch.setattr(os, "writev", writev)
    return errors


async def test_a_full_directory_is_started_and_waits_for_room(tmp_path: Path, disk: list[int]) -> None:
    """Its containers tell what they wait for; a store that ends tells it to nobody."""
    before = FilesystemChunkStorage(tmp_path, sync=False)
    await before.start()
    await before.put("old", [b"here"])
    await before.close()

    disk.append(errno.ENOSPC)
    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    assert await storage.get("old", 0, 4) == b"here"
    with pytest.raises(Unavailable, match="No space left"):
        await storage.put("new", [b"later"])
    disk.clear()
    await storage.put("new", [b"now"])
    assert list((tmp_path / TEMPORARY).iterdir()) == []
    await storage.close()


async def test_a_full_disk_on_which_the_directory_cannot_be_made_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, *args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "makedirs", full)
    storage = FilesystemChunkStorage(tmp_path / "below")
    with pytest.raises(Unavailable, match="No space left"):
        await storage.start()
    await storage.close()


async def test_a_disk_that_fails_is_refused_at_the_start(tmp_path: Path, disk: list[int]) -> None:
    disk.append(errno.EROFS)
    storage = FilesystemChunkStorage(tmp_path)
    with pytest.raises(ConfigurationError, match="Read-only file system"):
        await storage.start()
    await storage.close()
