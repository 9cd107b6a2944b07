"""Measures CPU and memory of every process of a run, grouped by its part.

Processes are found by their parents. Groups:

* ``driver-python`` the program that measures; ``driver-jvm`` Spark itself, with its tasks (local mode)
* ``python-tasks`` Python workers that run the tasks; ``python-planning`` those that plan, ask for offsets and commit,
  with the server that planners are forked by, which is no child of the JVM
* the services by name (``controller``, ``segment-store-0``, ``redis``, ``kafka``), each with what it started
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.bench import processes
from tests.bench.processes import ProcessTimes

sample_period_s: Final = 1.0
settle_window_s: Final = 0.4
settled_cores_max: Final = 0.15
settle_time_max_s: Final = 60.0
_PLANNER_SERVER: Final = "pravega_spark.planner_server.server"
_TASK_WORKER: Final = ["pyspark.daemon", "pyspark.worker"]


@dataclass(frozen=True)
class Members:
    """The processes of each group, and the CPU seconds of those that are gone."""

    pids: dict[str, list[int]]
    gone_s: dict[str, float]


def grouped(
    table: Mapping[int, ProcessTimes],
    driver: int,
    jvm: int,
    services: Mapping[str, int],
    is_task_worker: Callable[[int], bool],
    planner_servers: Iterable[int] = (),
) -> Members:
    """``is_task_worker`` tells the daemon of task workers from the JVM's other children."""
    pids = {"driver-python": [driver], "driver-jvm": [jvm], "python-tasks": [], "python-planning": []}
    for child in (times.pid for times in table.values() if times.parent == jvm):
        pids["python-tasks" if is_task_worker(child) else "python-planning"] += processes.tree_of(table, child)
    forked = (pid for server in planner_servers for pid in processes.tree_of(table, server))
    pids["python-planning"] += dict.fromkeys(forked)  # A forked planner may be taken for a server.
    for name, root in services.items():
        pids[name] = processes.tree_of(table, root)
    gone = {
        name: sum(
            table[pid].reaped_s for pid in members if pid in table and name not in ("driver-python", "driver-jvm")
        )
        for name, members in pids.items()
    }
    # Workers are waited for by the JVM; those outside the daemon end with their query.
    gone["python-planning"] += table[jvm].reaped_s if jvm in table else 0.0
    return Members(pids, gone)


def seconds_of(table: Mapping[int, ProcessTimes], members: Members) -> dict[str, float]:
    """CPU seconds of each group since its processes began."""
    return {
        name: sum(table[pid].own_s for pid in pids if pid in table) + members.gone_s[name]
        for name, pids in members.pids.items()
    }


@dataclass
class Memory:
    """Peaks of each group in MiB, summed over its processes."""

    rss: dict[str, float] = field(default_factory=dict)
    pss: dict[str, float] = field(default_factory=dict)

    def raise_to(self, other: Memory) -> None:
        for mine, theirs in ((self.rss, other.rss), (self.pss, other.pss)):
            for name, value in theirs.items():
                mine[name] = max(mine.get(name, 0.0), value)

    def as_json(self) -> dict[str, dict[str, int]]:
        return {
            "peak_rss_mib": {name: round(value) for name, value in self.rss.items() if value},
            "peak_pss_mib": {name: round(value) for name, value in self.pss.items() if value},
        }


class Watch:
    """Reads of the groups of one bench; ``services`` are process ids by name, asked for at every reading.

    ``session_mark``: a ``NAME=value`` that only what the session started has in its environment.
    """

    def __init__(self, jvm: int, services: Callable[[], Mapping[str, int]], session_mark: str = "") -> None:
        self._driver = os.getpid()
        self._jvm = jvm
        self._services = services
        self._session_mark = session_mark

    def members(self, table: Mapping[int, ProcessTimes]) -> Members:
        servers = processes.marked(_PLANNER_SERVER, self._session_mark) if self._session_mark else ()
        return grouped(table, self._driver, self._jvm, self._services(), _is_task_worker, servers)

    def cpu_s(self) -> dict[str, float]:
        table = processes.process_table()
        return seconds_of(table, self.members(table))

    def living_s(self) -> dict[str, dict[int, float]]:
        """CPU seconds of each process that lives now, by group and process id."""
        table = processes.process_table()
        return {name: {pid: table[pid].own_s for pid in pids} for name, pids in self.members(table).pids.items()}

    def thread_s(self) -> dict[str, dict[str, float]]:
        """CPU seconds of living threads, by group and name."""
        members = self.members(processes.process_table())
        return {name: processes.thread_seconds(pids) for name, pids in members.pids.items()}

    def settle(self) -> float:
        """Wait until what the last job left is done (Tier 2, write-back, compilers), so that the next one does not pay.

        Returns the seconds waited.
        """
        started_s = time.monotonic()
        os.sync()
        before = self.cpu_s()
        while time.monotonic() - started_s < settle_time_max_s:
            time.sleep(settle_window_s)
            now = self.cpu_s()
            spent = difference(now, before)
            del spent["driver-python"]  # The readings themselves.
            if sum(spent.values()) < settled_cores_max * settle_window_s:
                break
            before = now
        return time.monotonic() - started_s

    def memory_now(self) -> Memory:
        """Peaks since the last reset (RSS), and as it is now (PSS).

        A process that is alone in its group shares with nobody, and is asked for its resident memory: to divide its
        pages the kernel walks through all of them, which takes tens of milliseconds a gigabyte and holds it up.
        """
        members = self.members(processes.process_table())
        made = Memory()
        for name, pids in members.pids.items():
            memory_mib = processes.shared_out_memory_mib if len(pids) > 1 else processes.memory_mib
            made.rss[name] = sum(processes.peak_memory_mib(pid) for pid in pids)
            made.pss[name] = sum(memory_mib(pid) for pid in pids)
        return made

    def reset_peaks(self) -> None:
        for pids in self.members(processes.process_table()).pids.values():
            processes.reset_peak_memory(pids)


class Observed:
    """A stretch of time: wall, CPU by group, memory peaks. Workers come and go, so memory is sampled meanwhile too.

    ``other_cores``: how many cores somebody else kept busy. Figures of a machine that others use mean little.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._end = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self.memory = Memory()
        self.cpu_s: dict[str, float] = {}
        self.wall_s = 0.0
        self.other_cores = 0.0

    def __enter__(self) -> Observed:
        self._watch.reset_peaks()
        self._before, self._machine_before_s = self._watch.cpu_s(), processes.machine_s()
        self._sampler.start()
        self._started_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._started_s
        self.cpu_s = difference(self._watch.cpu_s(), self._before)
        machine_s = processes.machine_s() - self._machine_before_s
        self.other_cores = max(0.0, round((machine_s - sum(self.cpu_s.values())) / self.wall_s, 2))
        self._end.set()
        self._sampler.join()
        self.memory.raise_to(self._watch.memory_now())

    def _sample(self) -> None:
        while not self._end.wait(sample_period_s):
            self.memory.raise_to(self._watch.memory_now())


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """By name; a group that is new counts from nothing, one that shrank (it was started again) as nothing."""
    return {name: max(0.0, value - before.get(name, 0.0)) for name, value in after.items()}


def _is_task_worker(pid: int) -> bool:
    return processes.command_of(pid)[-2:] == _TASK_WORKER
