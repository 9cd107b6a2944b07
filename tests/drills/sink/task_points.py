"""Defines the points at which tasks fail, and those at which two drivers have one checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace

from controller_service.transactions.lifecycle import lease_grace_s
from pravega_spark.sink.batch_commit import BEFORE_DECISION
from pravega_spark.sink.transaction_writer import ROWS_DURABLE, ROWS_WRITTEN, TRANSACTION_BEGUN, TRANSACTION_REGISTERED
from tests.drills.sink.bench import Bench, expect_failure, expect_success
from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import DrillFailed
from tests.drills.sink.driver_points import commit_hits, task_hits
from tests.drills.sink.hooks import AMID_ROWS
from tests.drills.sink.points import point
from tests.drills.sink.runs import Run

lease_ms = 10_000
lease_time_s = lease_ms / 1000 + lease_grace_s + 3
"""After which a controller has ended a transaction that nobody renewed."""


def hurt(bench: Bench, runs: Sequence[Run], steps: Sequence[str], action: str) -> None:
    """A task of each run suffers the action at one of these steps; the runs end well."""
    armed = bench.arm(bench.rescuer, runs, steps, task_hits, action)
    bench.finish(runs)
    bench.expect_hits(bench.rescuer, armed)


@point("retry-failed", "task fails after it wrote its rows, and is retried", at_least_once=True)
def retry_failed(bench: Bench, runs: list[Run]) -> None:
    hurt(bench, runs, [TRANSACTION_BEGUN, TRANSACTION_REGISTERED, ROWS_WRITTEN, ROWS_DURABLE], "error")


@point("retry-upstream", "what yields a task's rows fails in the middle; the task is retried", at_least_once=True)
def retry_upstream(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        run.change(hooked=True)
    hurt(bench, runs, [AMID_ROWS], "error")


@point("retry-killed", "a task's Python worker is killed; the task is retried", at_least_once=True)
def retry_killed(bench: Bench, runs: list[Run]) -> None:
    hurt(bench, runs, [ROWS_WRITTEN, ROWS_DURABLE], "kill")


@point("lease-expired", "a task sleeps until the lease of its unbound transaction has ended")
def lease_expired(bench: Bench, runs: list[Run]) -> None:
    """The task has to run again, so the step is taken once more than there are tasks."""
    for run in runs:
        run.change(sink={**run.copy.sink, "transaction_timeout_ms": str(lease_ms)})
    attempts = len(task_hits) + 1
    held = bench.hold(bench.rescuer, runs, [TRANSACTION_BEGUN], task_hits, counted=attempts)
    bench.pause(lease_time_s)
    bench.let_go(held)
    expect_success(bench.rescuer.result())
    for run in runs:
        if not bench.rescuer.failpoints.taken_by(TRANSACTION_BEGUN, attempts, run.scope):
            raise DrillFailed(f"the lease had not ended after {lease_time_s} s: the task did not run again")


@point("zombie-driver", "driver frozen, another takes over, the first goes on", at_least_once=True)
def zombie_driver(bench: Bench, runs: list[Run]) -> None:
    bench.hold(bench.victim, runs, [ROWS_WRITTEN, ROWS_DURABLE, BEFORE_DECISION], commit_hits)
    bench.victim.freeze()
    bench.finish(runs)
    bench.victim.thaw()
    expect_refusal(bench, bench.victim.result())


def expect_refusal(bench: Bench, failures: Sequence[str | None]) -> None:
    """Checks that every overtaken query was refused; without transactions none is stopped."""
    if bench.exactly_once:
        expect_failure(failures, "another run", "after a later batch")


def copied_checkpoint(run: Run) -> Copy:
    """The same query from a copy of its checkpoint as it is now."""
    copied = f"{run.checkpoint}-copy"
    shutil.copytree(run.checkpoint, copied)
    return replace(run.copy, checkpoint=copied)


@point(
    "checkpoint-copied",
    "the query runs from a copy of its checkpoint while the first still runs",
    at_least_once=True,
)
def checkpoint_copied(bench: Bench, runs: list[Run]) -> None:
    held = bench.hold(bench.victim, runs, [BEFORE_DECISION], commit_hits)
    expect_success(bench.rescuer.run(*(copied_checkpoint(run) for run in runs)))
    bench.let_go(held)
    expect_refusal(bench, bench.victim.result())


@point("checkpoint-restored", "the query runs again from an older copy of its checkpoint", at_least_once=True)
def checkpoint_restored(bench: Bench, runs: list[Run]) -> None:
    held = bench.hold(bench.victim, runs, [BEFORE_DECISION], [1])
    copies = [copied_checkpoint(run) for run in runs]
    bench.let_go(held)
    expect_success(bench.victim.result())
    failures = bench.rescuer.run(*copies)
    if bench.exactly_once:
        expect_failure(failures, "the checkpoint is older than the stream")
