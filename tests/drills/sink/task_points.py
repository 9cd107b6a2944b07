"""Points at which tasks fail, and at which two drivers have one checkpoint."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace

from pravega_spark.batch_commit import BEFORE_DECISION
from pravega_spark.partition_writer import ROWS_DURABLE, ROWS_WRITTEN, TRANSACTION_BEGUN, TRANSACTION_REGISTERED
from tests.drills.sink.bench import Bench, Run
from tests.drills.sink.driver import DrillFailed
from tests.drills.sink.driver_points import commit_hits, task_hits
from tests.drills.sink.hooks import AMID_ROWS
from tests.drills.sink.points import point
from tests.drills.sink.processes import send

lease_ms = 10_000
lease_time_s = lease_ms / 1000 + 3


@point("retry-failed", "task fails after it wrote its rows, and is retried", at_least_once=True)
def retry_failed(bench: Bench, run: Run) -> None:
    steps = [TRANSACTION_BEGUN, TRANSACTION_REGISTERED, ROWS_WRITTEN, ROWS_DURABLE]
    bench.rescuer.failpoints.arm(bench.point(run.random.choice(steps)), "error", run.random.randint(1, task_hits))
    bench.finish(run.copy)


@point("retry-upstream", "what yields a task's rows fails in the middle; the task is retried", at_least_once=True)
def retry_upstream(bench: Bench, run: Run) -> None:
    bench.rescuer.failpoints.arm(AMID_ROWS, "error", run.random.randint(1, task_hits))
    bench.finish(replace(run.copy, hooked=True))


@point("retry-killed", "a task's Python worker is killed; the task is retried", at_least_once=True)
def retry_killed(bench: Bench, run: Run) -> None:
    step = bench.point(run.random.choice([ROWS_WRITTEN, ROWS_DURABLE]))
    bench.rescuer.failpoints.arm(step, "kill", run.random.randint(1, task_hits))
    bench.finish(run.copy)


@point("lease-expired", "a task sleeps until the lease of its unbound transaction has ended")
def lease_expired(bench: Bench, run: Run) -> None:
    run.copy = replace(run.copy, sink={**run.copy.sink, "transaction_timeout_ms": str(lease_ms)})
    hit = run.random.randint(1, task_hits)
    bench.rescuer.failpoints.arm(TRANSACTION_BEGUN, "stop", hit, counted=task_hits + 1)
    bench.rescuer.begin(run.copy)
    pid = bench.rescuer.wait_hit(TRANSACTION_BEGUN, hit)
    bench.pause(lease_time_s)
    send(pid, signal.SIGCONT)
    bench.expect_success(bench.rescuer.result())
    if not bench.rescuer.failpoints.taken_by(TRANSACTION_BEGUN, task_hits + 1):
        raise DrillFailed(f"the lease had not ended after {lease_time_s} s: the task did not run again")


@point("zombie-driver", "driver frozen, another takes over, the first goes on", at_least_once=True)
def zombie_driver(bench: Bench, run: Run) -> None:
    step = bench.point(run.random.choice([ROWS_WRITTEN, ROWS_DURABLE, BEFORE_DECISION]))
    hit = run.random.randint(1, commit_hits)
    bench.victim.failpoints.arm(step, "stop", hit)
    bench.victim.begin(run.copy)
    bench.victim.wait_hit(step, hit)
    bench.victim.freeze()
    bench.finish(run.copy)
    bench.victim.thaw()
    failures = bench.victim.result()
    if bench.exactly_once:
        bench.expect_failure(failures, "another run", "after a later batch")


@point(
    "checkpoint-copied",
    "the query runs from a copy of its checkpoint while the first still runs",
    at_least_once=True,
)
def checkpoint_copied(bench: Bench, run: Run) -> None:
    step = bench.point(BEFORE_DECISION)
    hit = run.random.randint(1, commit_hits)
    bench.victim.failpoints.arm(step, "stop", hit)
    bench.victim.begin(run.copy)
    pid = bench.victim.wait_hit(step, hit)
    copied = str(run.checkpoint) + "-copy"
    shutil.copytree(run.checkpoint, copied)
    bench.finish(replace(run.copy, checkpoint=copied))
    send(pid, signal.SIGCONT)
    failures = bench.victim.result()
    if bench.exactly_once:
        bench.expect_failure(failures, "another run", "after a later batch")


@point("checkpoint-restored", "the query runs again from an older copy of its checkpoint", at_least_once=True)
def checkpoint_restored(bench: Bench, run: Run) -> None:
    step = bench.point(BEFORE_DECISION)
    bench.victim.failpoints.arm(step, "stop")
    bench.victim.begin(run.copy)
    pid = bench.victim.wait_hit(step)
    copied = str(run.checkpoint) + "-copy"
    shutil.copytree(run.checkpoint, copied)
    send(pid, signal.SIGCONT)
    bench.expect_success(bench.victim.result())
    failures = bench.rescuer.run(replace(run.copy, checkpoint=copied))
    if bench.exactly_once:
        bench.expect_failure(failures, "the checkpoint is older than the stream")
