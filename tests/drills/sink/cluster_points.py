"""Defines the points on a cluster whose executors are processes of their own."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from pravega_spark.sink.batch_commit import AFTER_DECISION, BEFORE_DECISION
from pravega_spark.sink.transaction_writer import ROWS_DURABLE, ROWS_WRITTEN
from tests.drills.sink.bench import Bench, expect_success
from tests.drills.sink.cluster import SparkCluster, hosts
from tests.drills.sink.driver import Driver
from tests.drills.sink.driver_points import commit_hits, task_hits
from tests.drills.sink.points import point
from tests.drills.sink.processes import descendants, kill_tree, send
from tests.drills.sink.runs import Armed, Run

zombie_time_s = 1.0


def stopped_tasks(bench: Bench, driver: Driver, runs: Sequence[Run]) -> list[Armed]:
    """A Python worker of each run is stopped when its rows were sent, or durable."""
    return bench.hold(driver, runs, [ROWS_WRITTEN, ROWS_DURABLE], task_hits)


def executors_of(held: Sequence[Armed]) -> list[int]:
    return list(dict.fromkeys(SparkCluster.executor_of(item.pid) for item in held))


@point("executor-killed", "an executor killed with its Python workers in the middle of a task", at_least_once=True)
def executor_killed(bench: Bench, runs: list[Run]) -> None:
    """One after the other, so that what is run again may be hit again."""
    driver = bench.cluster_driver()
    for executor in executors_of(stopped_tasks(bench, driver, runs)):
        bench.cluster.wait_executors(len(hosts))
        kill_tree(executor)
    expect_success(driver.result())


@point(
    "zombie-attempt",
    "an executor frozen and given up, its task run elsewhere and committed, then it goes on",
    at_least_once=True,
)
def zombie_attempt(bench: Bench, runs: list[Run]) -> None:
    """Its Python workers go on first: they write before anybody tells them that they are late."""
    driver = bench.cluster_driver()
    executors = executors_of(stopped_tasks(bench, driver, runs))
    workers = [pid for executor in executors for pid in descendants(executor)]
    for pid in [*executors, *workers]:
        send(pid, signal.SIGSTOP)
    with bench.cluster.more_room():
        expect_success(driver.result())
        for pid in workers:
            send(pid, signal.SIGCONT)
        bench.pause(zombie_time_s)
        for pid in executors:
            send(pid, signal.SIGCONT)
        bench.pause(zombie_time_s)


@point("cluster-driver-killed", "driver of separate executors killed around the commit", at_least_once=True)
def cluster_driver_killed(bench: Bench, runs: list[Run]) -> None:
    bench.hold(bench.cluster_driver(), runs, [ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION], commit_hits)
    bench.kill_cluster_driver()
    bench.finish(runs)


@point("speculation", "a slow task overtaken by its speculative copy, then it goes on", at_least_once=True)
def speculation(bench: Bench, runs: list[Run]) -> None:
    driver = bench.cluster_driver(speculates=True)
    slow = stopped_tasks(bench, driver, runs)
    expect_success(driver.result())
    bench.let_go(slow)
    bench.pause(zombie_time_s)
