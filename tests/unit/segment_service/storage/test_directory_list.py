"""Listings of a directory: a page at a time, folder by folder, and an error where a folder cannot be read."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pravega_common.errors import Unavailable
from segment_service.storage import filesystem
from segment_service.storage.filesystem import FilesystemChunkStorage

FOLDERS = 20
NAMES = [f"c0/d/{folder:02}/{number}" for folder in range(FOLDERS) for number in range(3)]


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[FilesystemChunkStorage]:
    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    for name in reversed(NAMES):
        await storage.put(name, [b"x"])
    yield storage
    await storage.close()


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders that are read."""
    folders: list[str] = []
    scandir = os.scandir

    def noting(folder: str) -> Any:
        folders.append(Path(folder).name)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", noting)
    return folders


async def test_a_page_reads_the_folders_that_it_needs(
    storage: FilesystemChunkStorage, visited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "page_names_max", 6)
    listing = storage.list("c0/")
    assert (await anext(listing)).name == NAMES[0]
    assert visited == ["c0", "d", "00", "01"]
    assert [info.name async for info in listing] == NAMES[1:]
    assert len(visited) == 2 + FOLDERS


async def test_a_prefix_below_a_folder_reads_only_that(storage: FilesystemChunkStorage, visited: list[str]) -> None:
    assert [info.name async for info in storage.list("c0/d/07/")] == NAMES[21:24]
    assert [info.name async for info in storage.list("c0/d/1")] == NAMES[30:]
    assert visited == ["07", "d", *(f"{folder}" for folder in range(10, 20))]


async def test_chunks_that_are_deleted_meanwhile_end_nothing(
    storage: FilesystemChunkStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "page_names_max", 3)
    listing = storage.list("c0/")
    assert (await anext(listing)).name == NAMES[0]
    for name in NAMES[3:9]:
        await storage.delete_all([name])
    assert [info.name async for info in listing] == NAMES[1:3] + NAMES[9:]


async def test_a_folder_that_cannot_be_read_is_an_error(
    storage: FilesystemChunkStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter list would look as if data were lost."""
    scandir = os.scandir

    def failing(folder: str) -> Any:
        if Path(folder).name == "05":
            raise OSError(5, "Input/output error")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(Unavailable, match="Input/output error"):
        _ = [info async for info in storage.list("c0/")]
