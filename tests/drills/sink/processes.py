"""Signals all processes of a session: a driver, its JVM, its Python workers, also those whose parent is gone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.support.processes import descendants as descendants
from tests.support.processes import kill_tree as kill_tree
from tests.support.processes import parent_of as parent_of
from tests.support.processes import send as send
from tests.support.processes import stat_of

kill_time_max_s = 10.0
poll_s = 0.02


def processes_of_session(leader: int) -> list[int]:
    """Every living process of the session that ``leader`` began."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = stat_of(int(entry.name))
            if fields and fields[0] not in "ZX" and int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


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


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
