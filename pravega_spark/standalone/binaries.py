"""Finds the programs redis-server and minio, which the standalone starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

redis_version_min: Final = (6, 2)


def cache_bin_folder() -> Path:
    """Returns the folder in which ``scripts/setup`` puts programs that the machine lacks."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pravega-spark" / "bin"


def find_redis() -> Path:
    """Finds a redis-server or valkey-server that is new enough."""
    seen: list[str] = []
    for name in ("redis-server", "valkey-server", str(cache_bin_folder() / "redis-server")):
        program = shutil.which(name)
        if program is None:
            continue
        version = _redis_version(program)
        if version >= redis_version_min:
            return Path(program)
        seen.append(f"{program} is version {'.'.join(map(str, version))}")
    raise ConfigurationError(
        f"no Redis server of version 6.2 or newer found ({'; '.join(seen) or 'none on the path'});"
        " install redis-server or valkey with the system's package manager (in a clone: scripts/setup),"
        " or use --tier1 file"
    )


def find_minio() -> Path:
    program = shutil.which("minio") or shutil.which(str(cache_bin_folder() / "minio"))
    if program is None:
        raise ConfigurationError(
            "no minio program on the path; put one there (in a clone: scripts/setup --minio), or use --tier2 dir"
        )
    return Path(program)


def _redis_version(program: str) -> tuple[int, ...]:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(part) for part in match.groups()) if match else (0, 0, 0)
