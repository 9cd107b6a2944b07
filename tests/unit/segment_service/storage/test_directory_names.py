"""A put whose file got its name, or may have, although the answer was an error, as on a network's file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable, UnknownOutcome
from segment_service.storage.filesystem import TEMPORARY, FilesystemChunkStorage


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ENOENT])
async def test_a_put_that_was_done_is_not_said_to_have_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A mount gives up, or repeats a request whose answer was lost, and finds its file gone to its new name."""
    renamed = os.rename

    def rename(source: str, target: str) -> None:
        renamed(source, target)
        raise OSError(number, os.strerror(number))

    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    await storage.put("c1/1", [b"x"])
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(UnknownOutcome, match="may not have got its name"):
        await storage.put("c1/2", [b"y"])
    assert await storage.get("c1/2", 0, 1) == b"y"
    await storage.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
async def test_a_put_that_is_refused_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def rename(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(Unavailable):
        await storage.put("1", [b"x"])
    assert list((tmp_path / TEMPORARY).iterdir()) == []
    await storage.close()
