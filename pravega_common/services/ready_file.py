"""Writes and removes the file in which scripts find the addresses of a service that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pravega_common.errors import ConfigurationError


def write_ready_file(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file in one step: a reader sees the old content or the new one, never half of it."""
    temporary = _temporary(path)
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def make_room_for_ready_file(path: Path) -> None:
    """Removes a file that a killed process left, which would be taken for that of this one. ``ConfigurationError`` if
    none can be written there, before anything starts."""
    try:
        _temporary(path).touch()
        remove_ready_file(path)
    except OSError as error:
        raise ConfigurationError(f"the ready file {path} cannot be written ({error.strerror}): name another") from error


def remove_ready_file(path: Path) -> None:
    """Removes the file, and what a write that was cut off left beside it: nothing serves."""
    path.unlink(missing_ok=True)
    _temporary(path).unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".new")
