"""Syncs files, and the names in folders, to the disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: str | Path) -> None:
    """Make the bytes of a file durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: str | Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
