"""Runs the sink's crash matrix, with points of its own, on a store that cannot decide several transactions as one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pravega_common.model.transaction_sets import SetMember, SetState, Sink
from pravega_common.model.transactions import TransactionState
from pravega_common.names import scoped_name
from pravega_spark.ledger.batch_members import AFTER_ONE_COMMIT
from pravega_spark.ledger.table_ledger import AFTER_COMMITS, AFTER_MARK, AFTER_RECORD, BEFORE_RECORD
from pravega_streams.client import StreamClient
from tests.drills.sink.bench import Bench, expect_failure, tasks_of_batch
from tests.drills.sink.driver import DrillFailed
from tests.drills.sink.driver_points import commit_hits, kill_at, killed_at, task_hits
from tests.drills.sink.points import Point
from tests.drills.sink.runs import Run


class PlainBench(Bench):
    """On a store that runs already."""

    def __init__(self, folder: Path, controller: str) -> None:
        super().__init__(folder)
        self._address = controller

    def _start_services(self, ends: ExitStack) -> str:
        return self._address

    def recorded(self, run: Run, batch_id: int) -> tuple[SetMember, ...]:
        """The transactions on record for a batch that is not known to be committed."""
        query_id = json.loads((run.checkpoint / "metadata").read_text())["id"]
        sink = Sink(query_id, scoped_name(run.scope, run.target))
        found, _ = self.gateway.transaction_set(sink, batch_id)
        if found.state is not SetState.PENDING:
            raise DrillFailed(f"batch {batch_id} is on record as {found}, not pending")
        return found.members

    def abort_open(self, members: Sequence[SetMember]) -> list[uuid.UUID]:
        """As their leases would, if the drill could wait for ten minutes; returns which."""
        aborted = []
        with StreamClient(self.controller) as client:
            for member in members:
                name = (member.scope, member.stream, member.transaction_id)
                if client.controller.transaction_state(*name) is TransactionState.OPEN:
                    client.controller.abort_transaction(*name)
                    aborted.append(member.transaction_id)
        return aborted


def leases_over(bench: Bench, runs: list[Run]) -> None:
    """The recorded set ended before a commit, so the next run writes its own."""
    assert isinstance(bench, PlainBench)
    for item in kill_at(bench, runs, [AFTER_RECORD], commit_hits):
        aborted = bench.abort_open(bench.recorded(item.run, item.hit - 1))
        if len(aborted) != tasks_of_batch:
            raise DrillFailed(f"{len(aborted)} transactions of the batch were open, not {tasks_of_batch}")
    bench.finish(runs)


def zombie_after_record(bench: Bench, runs: list[Run]) -> None:
    """Another driver ends the batch that the first one recorded; the first one is refused when it goes on."""
    bench.hold(bench.victim, runs, [AFTER_RECORD], [1])
    bench.victim.freeze()
    bench.finish(runs)
    bench.victim.thaw()
    expect_failure(bench.victim.result(), "another run")


def torn_batch(bench: PlainBench, run: Run, policy: str) -> None:
    """One member committed, the other one aborted: the query stops and names them, and then follows the policy."""
    kill_at(bench, [run], [AFTER_ONE_COMMIT], [1])
    (aborted,) = bench.abort_open(bench.recorded(run, 0))
    expect_failure(bench.rescuer.run(run.copy), f"aborted: {aborted}")
    run.change(sink={**run.copy.sink, "on_unresolved_batch": policy})
    bench.finish([run])


def _killed(failpoint: str, what: str, hits: Sequence[int]) -> Point:
    return Point(failpoint.rpartition(".")[2].replace("_", "-"), what, killed_at(failpoint, hits))


PLAIN_POINTS = {
    point.name: point
    for point in (
        _killed(BEFORE_RECORD, "driver killed before the batch is recorded", commit_hits),
        _killed(AFTER_RECORD, "driver killed when the batch is recorded", commit_hits),
        _killed(AFTER_ONE_COMMIT, "driver killed between the commits of a batch", task_hits),
        _killed(AFTER_COMMITS, "driver killed when all is committed, and not on record", commit_hits),
        _killed(AFTER_MARK, "driver killed when the commit is on record", commit_hits),
        Point("leases-over", "driver killed when the batch is recorded; its leases end", leases_over),
        Point(
            "zombie-after-record", "driver frozen when the batch is recorded, another takes over", zombie_after_record
        ),
    )
}
