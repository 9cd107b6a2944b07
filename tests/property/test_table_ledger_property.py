"""Many drivers of one sink on a plain Pravega at once, their calls interleaved at random: killed, paused for longer
than leases, answers lost. Whatever happens, no batch is in the stream twice, and what was reported written is there."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from pravega_common.errors import FailedError, Fenced, PravegaError, UnknownOutcome
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    SetMember,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_common.model.transactions import TransactionState
from pravega_spark.ledger import table_ledger
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration
from pravega_spark.ledger.record import BatchUnresolved, CommitStep, LedgerRecord
from tests.support.fakes.plain_pravega import PlainPravega

SINK = Sink("query", "scope/stream")
histories = 400
drivers_max = 5
batches_max = 3
calls_max = 2_000
turn_time_max_s = 20.0


class Died(BaseException):
    """The driver's process is gone."""


class Actor:
    """A driver in a thread of its own, which runs only when the stage says so."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.go = threading.Semaphore(0)
        self.parked = threading.Semaphore(0)
        self.is_over = False
        self.must_die = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.must_die:
                Driver(self.stage, self.name).run()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.parked.release()

    def pause(self) -> None:
        """Between two calls, or between a call and its answer."""
        self.parked.release()
        self.go.acquire()
        if self.must_die:
            raise Died

    def step(self) -> None:
        self.go.release()
        assert self.parked.acquire(timeout=turn_time_max_s), f"{self.name} does not come back"


class Stage:
    """The store, the drivers on it, and what Spark's checkpoint knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = PlainPravega()
        self.store.watch = self.watch
        self.attempts: dict[tuple[str, int], list[SetMember]] = {}
        self.checkpoint = 0
        """The first batch that Spark does not know as written."""
        self.unresolved = False
        self.running: Actor | None = None
        self.faults = True

    def watch(self, call: str, when: str) -> None:
        if self.running is None:
            return
        self.running.pause()
        if self.faults and self.random.random() < 0.02:
            raise UnknownOutcome(f"{call} lost {when} it was done") if when == "after" else FailedError(call)

    def run(self) -> None:
        actors: list[Actor] = []
        for number in range(self.random.randint(2, drivers_max)):
            actors.append(Actor(self, f"run-{number}"))
        waiting = list(actors)
        active: list[Actor] = []
        for _ in range(calls_max):
            if waiting and (not active or self.random.random() < 0.02):
                active.append(waiting.pop(0))
                active[-1].thread.start()
            if not active:
                break
            actor = self.random.choice(active[-2:])
            self._one_step(actor)
            active = [item for item in active if not item.is_over]
        self._end(active)
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def _one_step(self, actor: Actor) -> None:
        chance = self.random.random()
        if chance < 0.01:
            actor.must_die = True
        elif chance < 0.02:
            self.store.now_s += self.random.choice([1.0, 200.0, 700.0])
        self.running = actor
        actor.step()
        self.running = None

    def _end(self, active: Sequence[Actor]) -> None:
        for actor in active:
            actor.must_die = True
            actor.step()

    def finish(self) -> None:
        """A last driver without faults brings everything to its end."""
        self.faults = False
        Driver(self, "last").run()

    def committed(self) -> dict[int, Counter[str]]:
        """By batch: how many members of each run's attempt are in the stream."""
        found: dict[int, Counter[str]] = {}
        for (run, batch_id), members in self.attempts.items():
            count = sum(self.store.state(item) is TransactionState.COMMITTED for item in members)
            if count:
                found.setdefault(batch_id, Counter())[run] += count
        return found


class Driver:
    """The work of Spark and the sink together, over ``TableLedger``: tasks, commit, abort, the checkpoint."""

    def __init__(self, stage: Stage, run: str) -> None:
        self.stage = stage
        self.run_id = run
        self.sets = stage.store.sets()

    def run(self) -> None:
        while self.stage.checkpoint < batches_max:
            batch_id = self.stage.checkpoint
            members: list[SetMember] = []
            try:
                self._tasks(batch_id, members)
                self._commit(batch_id, members)
            except BatchUnresolved:
                self.stage.unresolved = True
                return
            except PravegaError:
                self._abort(batch_id, members)
                return
            self.stage.checkpoint = max(self.stage.checkpoint, batch_id + 1)

    def _tasks(self, batch_id: int, members: list[SetMember]) -> None:
        for partition in range(1 + batch_id):
            member = self.stage.store.begin(partition)
            answer = self.sets.register(BatchRegistration(BatchIdentity(SINK, self.run_id, batch_id), (member,)))
            if answer.status is RegisterStatus.FENCED:
                raise Fenced(self.run_id)
            if answer.status is RegisterStatus.TRANSACTION_NOT_OPEN:
                raise FailedError(answer.detail)
            if answer.status is RegisterStatus.REGISTERED:
                members.append(member)
        self.stage.attempts[self.run_id, batch_id] = members

    def _commit(self, batch_id: int, members: list[SetMember]) -> None:
        identity = BatchIdentity(SINK, self.run_id, batch_id)
        commit = BatchCommit(identity, tuple(members), batch_id, batch_id)
        status = self.sets.commit(commit).status
        if status not in (CommitStatus.COMMITTED, CommitStatus.ALREADY_COMMITTED):
            raise FailedError(str(status))

    def _abort(self, batch_id: int, members: list[SetMember]) -> None:
        try:
            recorded, _ = self.sets.get(SINK, batch_id)
            if recorded.state in (SetState.NONE, SetState.REFUSED):
                for member in members:
                    self.stage.store.abort_transaction("", "", member.transaction_id)
        except PravegaError:
            return


def check_history(seed: int) -> Stage:
    stage = Stage(seed)
    stage.run()
    before = stage.checkpoint
    if not stage.unresolved:
        stage.finish()
    for batch_id, by_run in stage.committed().items():
        assert len(by_run) == 1, f"seed {seed}: batch {batch_id} was written by {dict(by_run)}"
    written = stage.checkpoint if not stage.unresolved else before
    for batch_id in range(written):
        ((run, count),) = stage.committed()[batch_id].items()
        assert count == len(stage.attempts[run, batch_id]), f"seed {seed}: batch {batch_id} is there in part"
    return stage


@pytest.mark.parametrize("part", range(8))
def test_random_histories(part: int) -> None:
    decided = sum(not check_history(seed).unresolved for seed in range(part, histories, 8))
    assert decided > histories / 8 * 0.8, "most histories can be decided"


def test_the_check_sees_a_sink_that_keeps_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the record rows are written twice, and the check above says so."""

    def forgetful(record: LedgerRecord, wanted: TransactionSet) -> CommitStep:
        return CommitStep.COMMITTED_ALREADY if wanted.batch_id < record.last_batch_id else CommitStep.PUT

    monkeypatch.setattr(table_ledger, "commit_step", once(forgetful))
    failed = 0
    for seed in range(histories):
        try:
            check_history(seed)
        except AssertionError as error:
            failed += "was written by" in str(error)
    assert failed > 0


def once(
    rule: Callable[[LedgerRecord, TransactionSet], CommitStep],
) -> Callable[[LedgerRecord, TransactionSet], CommitStep]:
    """A rule that lets a commit end after its set was written once."""
    put: set[tuple[str, int]] = set()

    def decide(record: LedgerRecord, wanted: TransactionSet) -> CommitStep:
        if (wanted.run_id, wanted.batch_id) in put and record.last_batch_id >= wanted.batch_id:
            return CommitStep.COMMITTED_ALREADY
        put.add((wanted.run_id, wanted.batch_id))
        return rule(record, wanted)

    return decide
