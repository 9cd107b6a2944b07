"""Points on a cluster whose executors are processes of their own."""

from __future__ import annotations

import signal

from pravega_spark.batch_commit import AFTER_DECISION, BEFORE_DECISION
from pravega_spark.partition_writer import ROWS_DURABLE, ROWS_WRITTEN
from tests.drills.sink.bench import Bench, Run
from tests.drills.sink.cluster import SparkCluster
from tests.drills.sink.driver_points import commit_hits, task_hits
from tests.drills.sink.points import point
from tests.drills.sink.processes import descendants, kill_tree, send

zombie_time_s = 1.0


def stopped_task(bench: Bench, run: Run) -> int:
    """The Python worker of a task that was stopped when its rows were sent, or durable."""
    step = bench.point(run.random.choice([ROWS_WRITTEN, ROWS_DURABLE]))
    hit = run.random.randint(1, task_hits)
    driver = bench.cluster_driver
    driver.failpoints.arm(step, "stop", hit)
    driver.begin(run.copy)
    return driver.wait_hit(step, hit)


@point(
    "executor-killed",
    "an executor killed with its Python workers in the middle of a task",
    at_least_once=True,
)
def executor_killed(bench: Bench, run: Run) -> None:
    kill_tree(SparkCluster.executor_of(stopped_task(bench, run)))
    bench.expect_success(bench.cluster_driver.result())


@point("speculation", "a slow task overtaken by its speculative copy", at_least_once=True)
def speculation(bench: Bench, run: Run) -> None:
    slow = stopped_task(bench, run)
    bench.expect_success(bench.cluster_driver.result())
    send(slow, signal.SIGCONT)


@point(
    "zombie-attempt",
    "an executor frozen, its task run elsewhere and committed, then it goes on",
    at_least_once=True,
)
def zombie_attempt(bench: Bench, run: Run) -> None:
    """Its Python workers first: they write on before anybody tells them that they are late."""
    executor = SparkCluster.executor_of(stopped_task(bench, run))
    workers = descendants(executor)
    for pid in [executor, *workers]:
        send(pid, signal.SIGSTOP)
    bench.expect_success(bench.cluster_driver.result())
    for pid in workers:
        send(pid, signal.SIGCONT)
    bench.pause(zombie_time_s)
    send(executor, signal.SIGCONT)
    bench.pause(zombie_time_s)


@point("cluster-driver-killed", "driver of separate executors killed around the commit", at_least_once=True)
def cluster_driver_killed(bench: Bench, run: Run) -> None:
    step = bench.point(run.random.choice([ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION]))
    hit = run.random.randint(1, commit_hits)
    driver = bench.cluster_driver
    driver.failpoints.arm(step, "stop", hit)
    driver.begin(run.copy)
    driver.wait_hit(step, hit)
    bench.kill_cluster_driver()
    bench.finish(run.copy)
