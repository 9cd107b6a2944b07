"""Says which run of a sink is the present one, for all that decide transaction sets."""

from __future__ import annotations

from typing import Protocol

import pytest

from pravega_common.model.sink_runs import runs_kept_max
from pravega_common.model.transaction_sets import CommitStatus, RegisterStatus, Registration, SetDecision, Sink
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration


class SinkCalls(Protocol):
    """The calls of tasks and drivers."""

    def register(self, registration: BatchRegistration) -> Registration: ...

    def commit(self, commit: BatchCommit) -> SetDecision: ...


class SinkRunsContract:
    """A subclass gives the fixtures ``calls`` and ``sink``, a fresh one."""

    def task(self, calls: SinkCalls, sink: Sink, run: str, batch_id: int) -> RegisterStatus:
        """The first call of a task of a run."""
        return calls.register(BatchRegistration(BatchIdentity(sink, run, batch_id), ())).status

    def driver(self, calls: SinkCalls, sink: Sink, run: str, batch_id: int) -> CommitStatus:
        """The commit of a batch without rows by a run's driver."""
        return calls.commit(BatchCommit(BatchIdentity(sink, run, batch_id), (), 0, 0)).status

    @pytest.mark.parametrize("has_called", [False, True])
    @pytest.mark.parametrize("late", [0, 1, 2])
    def test_a_task_that_outlives_its_driver_displaces_nobody(
        self, calls: SinkCalls, sink: Sink, has_called: bool, late: int
    ) -> None:
        """Whether its batch is decided or is the one that the present run writes, and whether the run was known."""
        if has_called:
            assert self.task(calls, sink, "a", 0) is RegisterStatus.REGISTERED
        for batch_id in (0, 1):
            assert self.task(calls, sink, "b", batch_id) is RegisterStatus.REGISTERED
            assert self.driver(calls, sink, "b", batch_id) is CommitStatus.COMMITTED
        assert self.task(calls, sink, "b", 2) is RegisterStatus.REGISTERED
        answer = RegisterStatus.BATCH_DECIDED if late < 2 else RegisterStatus.REGISTERED
        assert self.task(calls, sink, "a", late) is (RegisterStatus.FENCED if has_called else answer)
        assert self.task(calls, sink, "b", 2) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "b", 2) is CommitStatus.COMMITTED

    def test_a_late_task_in_the_first_batch_of_the_next_run_displaces_nobody(
        self, calls: SinkCalls, sink: Sink
    ) -> None:
        """The batch at which the driver died is the one that the next run writes first."""
        assert self.task(calls, sink, "b", 0) is RegisterStatus.REGISTERED
        assert self.task(calls, sink, "a", 0) is RegisterStatus.REGISTERED
        assert self.task(calls, sink, "b", 0) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "b", 0) is CommitStatus.COMMITTED
        assert self.task(calls, sink, "a", 0) is RegisterStatus.BATCH_DECIDED
        assert self.driver(calls, sink, "b", 1) is CommitStatus.COMMITTED

    @pytest.mark.parametrize("late", [0, runs_kept_max + 2])
    def test_a_late_task_of_a_run_that_is_not_remembered_displaces_nobody(
        self, calls: SinkCalls, sink: Sink, late: int
    ) -> None:
        """As where every batch has a run of its own."""
        last = runs_kept_max + 2
        for batch_id in range(last):
            assert self.driver(calls, sink, f"r{batch_id}", batch_id) is CommitStatus.COMMITTED
        assert self.task(calls, sink, f"r{last}", last) is RegisterStatus.REGISTERED
        answer = RegisterStatus.BATCH_DECIDED if late < last else RegisterStatus.REGISTERED
        assert self.task(calls, sink, "r0", late) is answer
        assert self.task(calls, sink, f"r{last}", last) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, f"r{last}", last) is CommitStatus.COMMITTED

    @pytest.mark.parametrize("first", ["driver", "task"])
    def test_a_newer_run_displaces(self, calls: SinkCalls, sink: Sink, first: str) -> None:
        """Whichever of its driver and its tasks calls first."""
        assert self.driver(calls, sink, "a", 0) is CommitStatus.COMMITTED
        if first == "task":
            assert self.task(calls, sink, "b", 1) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "b", 1) is CommitStatus.COMMITTED
        assert self.task(calls, sink, "a", 2) is RegisterStatus.FENCED
        assert self.driver(calls, sink, "a", 2) is CommitStatus.FENCED
        assert self.task(calls, sink, "b", 2) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "b", 2) is CommitStatus.COMMITTED

    def test_a_newer_run_displaces_one_that_wrote_after_its_tasks_called(self, calls: SinkCalls, sink: Sink) -> None:
        assert self.task(calls, sink, "a", 0) is RegisterStatus.REGISTERED
        assert self.task(calls, sink, "b", 0) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "a", 0) is CommitStatus.COMMITTED
        assert self.driver(calls, sink, "b", 0) is CommitStatus.ALREADY_COMMITTED
        assert self.driver(calls, sink, "b", 1) is CommitStatus.COMMITTED
        assert self.driver(calls, sink, "a", 2) is CommitStatus.FENCED

    def test_a_newer_run_displaces_one_whose_driver_has_not_called(self, calls: SinkCalls, sink: Sink) -> None:
        assert self.task(calls, sink, "a", 0) is RegisterStatus.REGISTERED
        assert self.task(calls, sink, "b", 0) is RegisterStatus.REGISTERED
        assert self.driver(calls, sink, "b", 0) is CommitStatus.COMMITTED
        assert self.task(calls, sink, "a", 1) is RegisterStatus.FENCED
        assert self.driver(calls, sink, "a", 1) is CommitStatus.FENCED

    def test_a_driver_that_was_stopped_before_its_first_call(self, calls: SinkCalls, sink: Sink) -> None:
        assert self.driver(calls, sink, "r", 0) is CommitStatus.COMMITTED
        assert self.driver(calls, sink, "zombie", 0) is CommitStatus.ALREADY_COMMITTED
        assert self.driver(calls, sink, "r", 1) is CommitStatus.COMMITTED
