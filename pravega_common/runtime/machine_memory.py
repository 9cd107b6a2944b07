"""Reads how much memory a process may use: that of its machine, or less where a control group limits it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container sees the limit of its control group: version 2, and version 1. Without one the file is not there,
says ``max``, or has a number beyond every machine's memory (Linux, Documentation/admin-guide/cgroup-v2.rst and v1)."""


def memory_bytes(limits: Sequence[Path] = CGROUP_LIMITS) -> int:
    """The least of the machine's memory and of what these files allow."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *(limit for path in limits if (limit := _limit_bytes(path)))])


def _limit_bytes(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:  # There is no control group of this version.
        return None
    return int(text) if text.isdecimal() else None
