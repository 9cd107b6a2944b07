"""Checks groups of processes, which are found by their parents."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.bench import processes
from tests.bench.processes import ProcessTimes, thread_name, tree_of
from tests.bench.watch import Observed, Watch, difference, grouped, seconds_of
from tests.support.eventually import eventually_blocking

TABLE = {
    times.pid: times
    for times in (
        ProcessTimes(10, 1, 1.0, 100.0),
        ProcessTimes(20, 10, 7.0, 0.5),
        ProcessTimes(21, 20, 0.1, 0.25),
        ProcessTimes(22, 21, 2.0, 0.0),
        ProcessTimes(23, 21, 3.0, 0.0),
        ProcessTimes(24, 20, 0.2, 0.0),
        ProcessTimes(30, 10, 4.0, 0.125),
        ProcessTimes(31, 30, 8.0, 0.0),
        ProcessTimes(99, 1, 50.0, 50.0),
    )
}


def test_a_tree_is_a_process_and_all_below_it() -> None:
    assert sorted(tree_of(TABLE, 20)) == [20, 21, 22, 23, 24]
    assert tree_of(TABLE, 98) == []


def test_every_process_is_in_one_group_and_strangers_in_none() -> None:
    members = grouped(TABLE, 10, 20, {"redis": 30}, lambda pid: pid == 21)
    assert {name: sorted(pids) for name, pids in members.pids.items()} == {
        "driver-python": [10],
        "driver-jvm": [20],
        "python-tasks": [21, 22, 23],
        "python-planning": [24],
        "redis": [30, 31],
    }


def test_planners_of_a_server_are_of_the_session() -> None:
    members = grouped(TABLE, 10, 20, {}, lambda pid: pid == 21, [30, 31])
    assert members.pids["python-planning"] == [24, 30, 31]


def test_processes_are_found_by_their_module_and_environment() -> None:
    command = [sys.executable, "-m", "asyncio"]
    with subprocess.Popen(command, env=os.environ | {"MARK": "here"}, stdin=subprocess.PIPE) as child:
        eventually_blocking(lambda: processes.marked("asyncio", "MARK=here") == [child.pid], "the process", 10)
        assert not processes.marked("asyncio", "MARK=there")
        assert not processes.marked("asynci", "MARK=here")
        child.kill()


def test_seconds_of_workers_that_ended_are_not_lost() -> None:
    members = grouped(TABLE, 10, 20, {"redis": 30}, lambda pid: pid == 21)
    assert seconds_of(TABLE, members) == {
        "driver-python": 1.0,
        "driver-jvm": 7.0,
        "python-tasks": 5.35,
        "python-planning": 0.7,
        "redis": 12.125,
    }


def test_a_service_that_was_started_again_counts_from_nothing() -> None:
    assert difference({"redis": 1.0, "new": 2.0}, {"redis": 3.0, "gone": 4.0}) == {"redis": 0.0, "new": 2.0}


def test_the_kernel_is_read() -> None:
    table = processes.process_table()
    me = table[os.getpid()]
    assert me.parent == os.getppid()
    assert os.getpid() in tree_of(table, os.getppid())
    assert processes.peak_memory_mib(os.getpid()) > 1
    assert processes.shared_out_memory_mib(os.getpid()) > 1
    assert processes.memory_mib(os.getpid()) > 1
    assert sum(processes.thread_seconds([os.getpid()]).values()) > 0
    assert processes.machine_s() > me.own_s


def test_a_stretch_of_work_is_observed() -> None:
    children: list[subprocess.Popen[bytes]] = []
    watch = Watch(os.getppid(), lambda: {"worker": children[0].pid} if children else {})
    with subprocess.Popen([sys.executable, "-c", "x = bytearray(50 << 20); input()"], stdin=subprocess.PIPE) as child:
        children.append(child)
        with Observed(watch) as observed:
            eventually_blocking(lambda: watch.memory_now().rss["worker"] >= 50, "the worker's 50 MiB", 10)
        child.communicate(b"\n")
    assert 0 < observed.wall_s < 10
    assert observed.cpu_s["worker"] >= 0 and observed.cpu_s["driver-python"] >= 0
    assert observed.other_cores >= 0
    told = observed.memory.as_json()
    assert told["peak_rss_mib"]["worker"] >= 50
    assert told["peak_pss_mib"]["worker"] >= 45


def test_threads_of_a_pool_have_one_name() -> None:
    assert thread_name("C2 CompilerThre1") == "C2 CompilerThre"
    assert thread_name("G1 Conc#0") == "G1 Conc"
    assert thread_name("7") == "7"
