"""Replaces files that hold secrets, or that nothing starts without."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pravega_common.runtime.synced_files import sync_folder

private_mode: Final = 0o700
"""The mode of a folder that is for its user alone."""


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file in one step, durably; it has its mode from its first byte on."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
