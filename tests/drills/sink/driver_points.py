"""Defines the points at which the driver is killed whole and another goes on from its checkpoints."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pravega_spark.sink.batch_commit import AFTER_DECISION, BEFORE_DECISION, BEFORE_RETURN
from pravega_spark.sink.transaction_writer import ROWS_DURABLE, ROWS_WRITTEN, TRANSACTION_BEGUN, TRANSACTION_REGISTERED
from tests.drills.sink.bench import Bench, batches_of_input, expect_failure
from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import DrillFailed
from tests.drills.sink.hooks import AMID_ROWS, BEFORE_ROWS, BETWEEN_WRITES
from tests.drills.sink.points import Story, point
from tests.drills.sink.processes import send
from tests.drills.sink.runs import Armed, Run, copies_of

task_hits = (1, 2, 3, 4)
"""Two tasks in each of two batches."""
commit_hits = (1, 2)
random_time_max_s = 12.0


def kill_at(
    bench: Bench, runs: Sequence[Run], steps: Sequence[str], hits: Sequence[int], action: str = "stop"
) -> list[Armed]:
    """The driver dies when each run stands at a hit of one of these steps, in any of its processes."""
    held = bench.hold(bench.victim, runs, steps, hits, action)
    bench.kill_victim()
    return held


def killed_at(failpoint: str, hits: Sequence[int]) -> Story:
    def story(bench: Bench, runs: list[Run]) -> None:
        kill_at(bench, runs, [failpoint], hits)
        bench.finish(runs)

    return story


for _name, _what, _failpoint, _hits in (
    ("task-begun", "driver killed when a transaction is begun", TRANSACTION_BEGUN, task_hits),
    ("task-registered", "driver killed when a transaction is bound to its batch", TRANSACTION_REGISTERED, task_hits),
    ("task-written", "driver killed when a task's rows are sent", ROWS_WRITTEN, task_hits),
    ("task-durable", "driver killed when a task's rows are durable", ROWS_DURABLE, task_hits),
    ("commit-before", "driver killed before the commit", BEFORE_DECISION, commit_hits),
    ("commit-decided", "driver killed when the batch is decided", AFTER_DECISION, commit_hits),
    ("commit-readable", "driver killed when the batch is readable", BEFORE_RETURN, commit_hits),
):
    _durable = _failpoint == ROWS_DURABLE
    point(_name, _what, at_least_once=_durable)(killed_at(_failpoint, _hits))


@point("offset-logged", "driver killed between the offset log and the batch's first row", at_least_once=True)
def offset_logged(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        run.change(hooked=True)
    kill_at(bench, runs, [BEFORE_ROWS], task_hits)
    bench.finish(runs)


@point("task-amid", "driver killed in the middle of a task's rows", at_least_once=True)
def task_amid(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        run.change(hooked=True)
    kill_at(bench, runs, [AMID_ROWS], task_hits)
    bench.finish(runs)


@point("random-moment", "driver killed at a random moment", at_least_once=True)
def random_moment(bench: Bench, runs: list[Run]) -> None:
    """Each query has run for a random time when it dies, from none to all that it needs."""
    ages_s = sorted((run.random.uniform(0.2, random_time_max_s) for run in runs), reverse=True)
    for run, age_s in zip(runs, ages_s, strict=True):
        run.change(start_after_s=ages_s[0] - age_s)
    bench.victim.begin(*copies_of(runs))
    bench.pause(ages_s[0])
    bench.kill_victim()
    for run in runs:
        run.change(start_after_s=0.0)
        _delete_if_hardly_begun(run.checkpoint)
    bench.finish(runs)


def _delete_if_hardly_begun(checkpoint: Path) -> None:
    """Spark, killed while it writes its first offset, says to delete the checkpoint; no batch of it has begun."""
    offsets = checkpoint / "offsets"
    if offsets.is_dir() and any(offsets.iterdir()) and not (offsets / "0").exists():
        shutil.rmtree(checkpoint)


@point("commit-log", "query fails between our commit and Spark's commit log", at_least_once=True)
def commit_log(bench: Bench, runs: list[Run]) -> None:
    """Spark finds its file of the batch taken, as if another driver had written it."""
    hits = commit_hits if bench.exactly_once else (2, 4)
    held = bench.hold(bench.victim, runs, [BEFORE_RETURN], hits)
    taken = []
    for run in runs:
        batch = max(int(file.name) for file in (run.checkpoint / "offsets").iterdir() if file.name.isdecimal())
        taken.append(run.checkpoint / "commits" / str(batch))
        taken[-1].write_text("taken")
    bench.let_go(held)
    for file, failure in zip(taken, bench.victim.result(), strict=True):
        if failure is None:
            raise DrillFailed(f"Spark did not mind that {file} was there")
        file.unlink()
    bench.finish(runs)


@point("replay-repartitioned", "driver killed, the batch replayed in other partitions", at_least_once=True)
def replay_repartitioned(bench: Bench, runs: list[Run]) -> None:
    kill_at(bench, runs, [BEFORE_DECISION, AFTER_DECISION, ROWS_DURABLE], commit_hits)
    for run in runs:
        run.change(repartition=3)
    bench.finish(runs)


def decided(bench: Bench, runs: list[Run]) -> list[Copy]:
    """Kill the driver when a batch of each run is decided; returns the queries with one row of that batch less."""
    others = []
    for item in kill_at(bench, runs, [AFTER_DECISION], commit_hits):
        bench.wait_finished(item.run, item.hit - 1)
        last = max(bench.numbers(item.run, item.run.target))
        others.append(replace(item.run.copy, where=f"cast(value as int) <> {last}"))
    return others


@point("replay-differs-fail", "decided batch replayed with other rows, which stops the query")
def replay_differs_fail(bench: Bench, runs: list[Run]) -> None:
    expect_failure(bench.rescuer.run(*decided(bench, runs)), "was committed with")
    bench.finish(runs)


@point("replay-differs-skip", "decided batch replayed with other rows, on_replay_mismatch=skip")
def replay_differs_skip(bench: Bench, runs: list[Run]) -> None:
    for run, other in zip(runs, decided(bench, runs), strict=True):
        run.change(where=other.where, sink={**other.sink, "on_replay_mismatch": "skip"})
    bench.finish(runs)


@point("empty-batch", "driver killed around the decision of an empty batch")
def empty_batch(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        run.change(where="cast(value as int) >= 100")
        run.expected[run.target] = [number for number in bench.input if number >= 100]
    kill_at(bench, runs, [BEFORE_DECISION, AFTER_DECISION], [1])
    bench.finish(runs)
    for run in runs:
        recorded = bench.wait_finished(run, 0)
        if recorded.events or recorded.members:
            raise DrillFailed(f"the empty batch is recorded as {recorded}")
        bench.wait_finished(run, batches_of_input - 1)


@point("two-queries", "driver with two queries into one stream killed", at_least_once=True)
def two_queries(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        # Order is promised for the keys of one query.
        low = replace(run.copy, where="cast(value as int) % 10 < 5")
        high = replace(run.copy, where="cast(value as int) % 10 >= 5", checkpoint=f"{run.copy.checkpoint}-b")
        run.copies = (low, high)
    kill_at(bench, runs, [ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION, BEFORE_RETURN], (1, 2, 3, 4))
    bench.finish(runs)


@point("two-streams", "driver killed while a batch goes to two streams", at_least_once=True)
def two_streams(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        other = bench.second_target(run)
        for stream, rest in ((run.target, 0), (other, 1)):
            run.expected[stream] = [number for number in bench.input if number // 10 % 2 == rest]
        run.change(spread=True)
    kill_at(bench, runs, [TRANSACTION_REGISTERED, ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION], commit_hits)
    bench.finish(runs)


@point(
    "foreach-two-streams",
    "driver killed between two writes of foreachBatch to two streams",
    at_least_once=True,
)
def foreach_two_streams(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        bench.second_target(run)
    kill_at(bench, runs, [BETWEEN_WRITES], commit_hits, action="hold")
    bench.finish(runs)


@point(
    "foreach-one-stream",
    "driver killed between two writes of foreachBatch to one stream",
    at_least_once=True,
)
def foreach_one_stream(bench: Bench, runs: list[Run]) -> None:
    for run in runs:
        run.change(targets=(run.target, run.target))
    kill_at(bench, runs, [BETWEEN_WRITES], commit_hits, action="hold")
    bench.finish(runs)


def controller_at(step: str) -> Story:
    """The controller is at one step of a decision of each run when the driver dies; then it dies too, or goes on."""

    def story(bench: Bench, runs: list[Run]) -> None:
        name = f"transaction_set.{step}"
        for run in runs:
            bench.controller_points.arm(name, "hold", run.pick(commit_hits), run.scope)
        bench.victim.begin(*copies_of(runs))
        for run in runs:
            bench.wait_controller(name, run.pick(commit_hits), run.scope)
        controller = bench.controller_pid
        send(controller, signal.SIGSTOP)
        bench.kill_victim()
        bench.controller_points.disarm()
        goes_on = runs[0].seed // len(runs) % 2
        send(controller, signal.SIGCONT if goes_on else signal.SIGKILL)
        bench.finish(runs)

    return story


for _step, _what in (
    ("pending_recorded", "has recorded the set as pending"),
    ("members_bound", "has bound the set's members"),
    ("commit_recorded", "has passed the commit point"),
    ("order_recorded", "has ordered the members in their streams"),
):
    _text = f"driver killed while the controller {_what}; the controller dies or goes on"
    point(f"controller-{_step.replace('_', '-')}", _text)(controller_at(_step))
