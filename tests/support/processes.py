"""Finds processes by parent and state as the kernel has them, and signals all of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def stat_of(pid: int) -> list[str]:
    """State, parent, group, session, … of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """One letter (``T``: stopped by a signal, ``Z``: ended and not waited for); empty if the process is gone."""
    return (stat_of(pid) or [""])[0]


def parent_of(pid: int) -> int:
    """0 if the process is gone."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def descendants(root: int) -> list[int]:
    """All processes below one, parents first. A process that lost its parent is not among them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := stat_of(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_tree(root: int) -> None:
    """SIGKILL to a process and all below it: found first, since orphans cannot be found."""
    for pid in [root, *descendants(root)]:
        send(pid, signal.SIGKILL)
