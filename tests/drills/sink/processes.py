"""Processes of one session as a whole: a driver, its JVM, its Python workers, also those whose parent is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

kill_time_max_s = 10.0
poll_s = 0.02


def processes_of_session(leader: int) -> list[int]:
    """Every living process of the session that ``leader`` began."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _stat(int(entry.name))
            if fields and fields[0] not in "ZX" and int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    """0 if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def signal_session(leader: int, number: signal.Signals) -> None:
    for pid in processes_of_session(leader):
        send(pid, number)


def kill_session(leader: int) -> None:
    """SIGKILL until none is left: a process may fork while the list is read."""
    deadline_s = time.monotonic() + kill_time_max_s
    while processes_of_session(leader):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"processes of session {leader} do not die: {processes_of_session(leader)}")
        signal_session(leader, signal.SIGKILL)
        time.sleep(poll_s)


def kill_tree(root: int) -> None:
    """SIGKILL to a process and all below it, children found before their parent dies."""
    for pid in [root, *descendants(root)]:
        send(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Nothing happens if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, … of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
