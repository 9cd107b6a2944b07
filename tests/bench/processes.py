"""Reads parents, CPU seconds and memory of processes from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ticks_per_s: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """``own_s`` is of the process itself, ``reaped_s`` of children that ended and were waited for."""

    pid: int
    parent: int
    own_s: float
    reaped_s: float


def process_table() -> dict[int, ProcessTimes]:
    """All processes of the machine, by id."""
    return {pid: times for pid in process_ids() if (times := _times(pid))}


def process_ids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def _times(pid: int) -> ProcessTimes | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:  # It ended.
        return None
    fields = text.rpartition(")")[2].split()
    own = int(fields[11]) + int(fields[12])
    reaped = int(fields[13]) + int(fields[14])
    return ProcessTimes(pid, int(fields[1]), own / ticks_per_s, reaped / ticks_per_s)


def machine_s() -> float:
    """CPU seconds that the whole machine was busy, the kernel's own among them."""
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(
        int, (_PROC / "stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + softirq + stolen) / ticks_per_s


def tree_of(table: Mapping[int, ProcessTimes], root: int) -> list[int]:
    """A process and all that it started, directly or not; empty if it is not there."""
    children: dict[int, list[int]] = {}
    for times in table.values():
        children.setdefault(times.parent, []).append(times.pid)
    found, waiting = [], [root] if root in table else []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def command_of(pid: int) -> list[str]:
    """The command line; empty if the process ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def marked(module: str, mark: str) -> list[int]:
    """Processes that run ``python -m module`` and have ``mark`` (``NAME=value``) in their environment."""
    return [pid for pid in process_ids() if command_of(pid)[1:3] == ["-m", module] and mark in _environment_of(pid)]


def _environment_of(pid: int) -> list[str]:
    """Empty if the process ended, or is somebody else's."""
    try:
        return (_PROC / str(pid) / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def thread_seconds(pids: Iterable[int]) -> dict[str, float]:
    """CPU seconds of the threads that live now, by name without its number."""
    found: dict[str, float] = {}
    for pid in pids:
        try:
            tasks = list((_PROC / str(pid) / "task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                head, _, rest = (task / "stat").read_text().rpartition(")")
            except OSError:
                continue
            name, fields = thread_name(head.partition("(")[2]), rest.split()
            found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / ticks_per_s
    return found


def thread_name(name: str) -> str:
    """Threads of one pool count as one: ``C2 CompilerThre0`` and ``C2 CompilerThre1``."""
    return name.rstrip("0123456789#-. ") or name


def reset_peak_memory(pids: Iterable[int]) -> None:
    """Makes the kernel note the highest resident memory from now on."""
    for pid in pids:
        try:
            (_PROC / str(pid) / "clear_refs").write_text("5")
        except OSError:
            continue


def peak_memory_mib(pid: int) -> float:
    """The highest resident memory since the last reset; 0 if the process ended."""
    return _mib(_PROC / str(pid) / "status", "VmHWM:")


def memory_mib(pid: int) -> float:
    """Resident memory now; 0 if the process ended."""
    return _mib(_PROC / str(pid) / "status", "VmRSS:")


def shared_out_memory_mib(pid: int) -> float:
    """Resident memory now, each page divided among the processes that share it (PSS); 0 if the process ended."""
    return _mib(_PROC / str(pid) / "smaps_rollup", "Pss:")


def _mib(file: Path, field: str) -> float:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0
    return 0.0
