"""Points at which the driver is killed whole and another goes on from its checkpoint."""

from __future__ import annotations

import signal
from dataclasses import replace

from pravega_spark.batch_commit import AFTER_DECISION, BEFORE_DECISION, BEFORE_RETURN
from pravega_spark.partition_writer import ROWS_DURABLE, ROWS_WRITTEN, TRANSACTION_BEGUN, TRANSACTION_REGISTERED
from tests.drills.sink.bench import Bench, Run, batches_of_input
from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import DrillFailed
from tests.drills.sink.hooks import AMID_ROWS, BEFORE_ROWS, BETWEEN_WRITES
from tests.drills.sink.points import Story, point
from tests.drills.sink.processes import send

task_hits = 4
"""Two tasks in each of two batches."""
commit_hits = 2


def kill_at(bench: Bench, run: Run, failpoint: str, hits: int, *copies: Copy) -> int:
    """The driver dies at one of the first ``hits`` hits, in any of its processes; returns at which."""
    name, hit = bench.point(failpoint), run.random.randint(1, hits)
    bench.victim.failpoints.arm(name, "stop", hit)
    bench.victim.begin(*(copies or (run.copy,)))
    bench.victim.wait_hit(name, hit)
    bench.kill_victim()
    return hit


def killed_at(failpoint: str, hits: int) -> Story:
    def story(bench: Bench, run: Run) -> None:
        kill_at(bench, run, failpoint, hits)
        bench.finish(run.copy)

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
def offset_logged(bench: Bench, run: Run) -> None:
    run.copy = replace(run.copy, hooked=True)
    kill_at(bench, run, BEFORE_ROWS, task_hits)
    bench.finish(run.copy)


@point("task-amid", "driver killed in the middle of a task's rows", at_least_once=True)
def task_amid(bench: Bench, run: Run) -> None:
    run.copy = replace(run.copy, hooked=True)
    kill_at(bench, run, AMID_ROWS, task_hits)
    bench.finish(run.copy)


@point("random-moment", "driver killed at a random moment", at_least_once=True)
def random_moment(bench: Bench, run: Run) -> None:
    bench.victim.begin(run.copy)
    bench.pause(run.random.uniform(0.2, 6.0))
    bench.kill_victim()
    bench.finish(run.copy)


@point("commit-log", "query fails between our commit and Spark's commit log", at_least_once=True)
def commit_log(bench: Bench, run: Run) -> None:
    """Spark finds its file of the batch taken, as if another driver had written it."""
    name, hit = bench.point(BEFORE_RETURN), run.random.randint(1, commit_hits)
    hit = hit if bench.exactly_once else 2 * hit
    bench.victim.failpoints.arm(name, "stop", hit)
    bench.victim.begin(run.copy)
    pid = bench.victim.wait_hit(name, hit)
    batch = max(int(file.name) for file in (run.checkpoint / "offsets").iterdir() if file.name.isdecimal())
    taken = run.checkpoint / "commits" / str(batch)
    taken.write_text("taken")
    send(pid, signal.SIGCONT)
    if bench.victim.result() == [None]:
        raise DrillFailed(f"Spark did not mind that {taken} was there")
    taken.unlink()
    bench.finish(run.copy)


@point("replay-repartitioned", "driver killed, the batch replayed in other partitions", at_least_once=True)
def replay_repartitioned(bench: Bench, run: Run) -> None:
    failpoint = (
        run.random.choice([BEFORE_DECISION, AFTER_DECISION, ROWS_DURABLE]) if bench.exactly_once else ROWS_DURABLE
    )
    kill_at(bench, run, failpoint, commit_hits)
    bench.finish(replace(run.copy, repartition=3))


def decided(bench: Bench, run: Run) -> Copy:
    """Kill the driver when a batch is decided; returns the query with one row of that batch less."""
    batch = kill_at(bench, run, AFTER_DECISION, commit_hits) - 1
    bench.wait_finished(run, batch)
    return replace(run.copy, where=f"cast(value as int) <> {max(bench.numbers(run.target))}")


@point("replay-differs-fail", "decided batch replayed with other rows, which stops the query")
def replay_differs_fail(bench: Bench, run: Run) -> None:
    other = decided(bench, run)
    bench.expect_failure(bench.rescuer.run(other), "was committed with")
    bench.finish(run.copy)


@point("replay-differs-skip", "decided batch replayed with other rows, on_replay_mismatch=skip")
def replay_differs_skip(bench: Bench, run: Run) -> None:
    other = decided(bench, run)
    bench.finish(replace(other, sink={**other.sink, "on_replay_mismatch": "skip"}))


@point("empty-batch", "driver killed around the decision of an empty batch")
def empty_batch(bench: Bench, run: Run) -> None:
    run.copy = replace(run.copy, where="cast(value as int) >= 100")
    run.expected[run.target] = [number for number in bench.input if number >= 100]
    kill_at(bench, run, run.random.choice([BEFORE_DECISION, AFTER_DECISION]), 1)
    bench.finish(run.copy)
    recorded = bench.wait_finished(run, 0)
    if recorded.events or recorded.members:
        raise DrillFailed(f"the empty batch is recorded as {recorded}")
    bench.wait_finished(run, batches_of_input - 1)


@point("two-queries", "driver with two queries into one stream killed", at_least_once=True)
def two_queries(bench: Bench, run: Run) -> None:
    # Order is promised for the keys of one query.
    low = replace(run.copy, where="cast(value as int) % 10 < 5")
    high = replace(run.copy, where="cast(value as int) % 10 >= 5", checkpoint=f"{run.copy.checkpoint}-b")
    failpoint = run.random.choice([ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION, BEFORE_RETURN])
    kill_at(bench, run, failpoint, 2 * commit_hits, low, high)
    bench.finish(low, high)


@point("two-streams", "driver killed while a batch goes to two streams", at_least_once=True)
def two_streams(bench: Bench, run: Run) -> None:
    other = bench.second_target(run)
    for stream, rest in ((run.target, 0), (other, 1)):
        run.expected[stream] = [number for number in bench.input if number // 10 % 2 == rest]
    run.copy = replace(run.copy, spread=True)
    failpoint = run.random.choice([TRANSACTION_REGISTERED, ROWS_DURABLE, BEFORE_DECISION, AFTER_DECISION])
    kill_at(bench, run, failpoint, commit_hits)
    bench.finish(run.copy)


@point(
    "foreach-two-streams",
    "driver killed between two writes of foreachBatch to two streams",
    at_least_once=True,
)
def foreach_two_streams(bench: Bench, run: Run) -> None:
    bench.second_target(run)
    kill_at(bench, run, BETWEEN_WRITES, commit_hits)
    bench.finish(run.copy)


@point(
    "foreach-one-stream",
    "driver killed between two writes of foreachBatch to one stream",
    at_least_once=True,
)
def foreach_one_stream(bench: Bench, run: Run) -> None:
    run.copy = replace(run.copy, targets=(run.target, run.target))
    kill_at(bench, run, BETWEEN_WRITES, commit_hits)
    bench.finish(run.copy)


def controller_at(step: str) -> Story:
    """The controller is at one step of a decision when the driver dies; then it goes on, or dies too."""

    def story(bench: Bench, run: Run) -> None:
        name, hit = f"transaction_set.{step}", run.random.randint(1, commit_hits)
        bench.controller_points.arm(name, "stop", hit)
        bench.victim.begin(run.copy)
        controller = bench.wait_controller(name, hit)
        bench.kill_victim()
        send(controller, run.random.choice([signal.SIGCONT, signal.SIGKILL]))
        bench.finish(run.copy)

    return story


for _step, _what in (
    ("pending_recorded", "has recorded the set as pending"),
    ("members_bound", "has bound the set's members"),
    ("commit_recorded", "has passed the commit point"),
    ("order_recorded", "has ordered the members in their streams"),
):
    _text = f"driver killed while the controller {_what}; the controller goes on or dies"
    point(f"controller-{_step.replace('_', '-')}", _text)(controller_at(_step))
