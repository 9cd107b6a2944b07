"""Writes and removes the file in which scripts find the addresses of a service that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_ready_file(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file in one step: a reader sees the old content or the new one, never half of it."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def remove_ready_file(path: Path) -> None:
    """Removes the file, and what a write that was cut off left beside it: nothing serves."""
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".new").unlink(missing_ok=True)
