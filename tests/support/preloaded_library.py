"""Compiles a small library that processes are started with (``LD_PRELOAD``)."""

from __future__ import annotations

import subprocess
from pathlib import Path


def compiled(source: Path, folder: Path) -> Path:
    """The library of one C file, made in ``folder``; it takes ``gcc``."""
    library = folder / source.with_suffix(".so").name
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
