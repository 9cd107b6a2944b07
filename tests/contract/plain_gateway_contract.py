"""Says how a ``StreamGateway`` behaves whose controller cannot decide several transactions as one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    SetMember,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_common.runtime.failpoints import arm, disarm_all
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.ledger.batch import UnresolvedPolicy
from pravega_spark.ledger.batch_members import AFTER_ONE_COMMIT, lease_ms
from pravega_spark.ledger.record import BatchUnresolved, key_of, new_record, table_segment, to_bytes
from pravega_spark.ledger.table_ledger import AFTER_RECORD
from pravega_streams.client import StreamClient
from pravega_streams.table.blocking_table import BlockingTable
from tests.contract.stream_gateway_contract import StreamGatewayContract, commit_set, framed, register


class Died(BaseException):
    """A driver that ends at a failpoint."""


def die_at(point: str, hit: int = 1) -> None:
    hits = 0

    def action() -> None:
        nonlocal hits
        hits += 1
        if hits == hit:
            raise Died(point)

    arm(point, action)


class PlainGatewayContract(StreamGatewayContract):
    """A subclass gives the fixture ``controller`` (an address)."""

    keeps_secrets = False

    @pytest.fixture
    def gateway(self, controller: str) -> Iterator[ServiceGateway]:
        made = ServiceGateway(controller)
        yield made
        made.close()

    @pytest.fixture
    def second(self, controller: str) -> Iterator[ServiceGateway]:
        """Another driver."""
        made = ServiceGateway(controller)
        yield made
        made.close()

    @pytest.fixture(autouse=True)
    def nothing_armed(self) -> Iterator[None]:
        yield
        disarm_all()

    def test_what_is_not_in_the_set_is_aborted(self, gateway: StreamGateway, scope: str) -> None:
        """An orphan is left to its lease, since only its task knows it; it never gets into a later set."""
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        orphan, member = (self.begin(gateway, scope, sink, [b"x"]) for _ in range(2))
        commit_set(gateway, sink, "r", 0, [member], 1, 9)
        self.wait_finished(gateway, sink)
        assert register(gateway, sink, "r", 0, [orphan]).status is RegisterStatus.BATCH_DECIDED
        assert self.content(gateway, scope, 0) == framed([b"x"])
        gateway.abort_transaction(scope, "t", orphan.transaction_id)

    def test_the_largest_lease(self, gateway: StreamGateway, scope: str, sink: Sink) -> None:
        made = gateway.create_transaction(scope, "t", 30_000)
        member = SetMember(scope, "t", made.transaction_id, 0)
        assert register(gateway, sink, "r", 0, [member]).renewed_for_ms == lease_ms

    def begun(self, gateway: StreamGateway, scope: str, sink: Sink, run: str, count: int = 3) -> list[SetMember]:
        """Members with one event each, which names its run and partition."""
        members = []
        for partition in range(count):
            member = self.begin_in(gateway, scope, sink, run, partition, f"{run}{partition}".encode())
            members.append(member)
        return members

    def begin_in(
        self, gateway: StreamGateway, scope: str, sink: Sink, run: str, partition: int, event: bytes
    ) -> SetMember:
        made = gateway.create_transaction(scope, "t", 30_000)
        member = SetMember(scope, "t", made.transaction_id, partition, 1, len(event) + 8)
        answer = register(gateway, sink, run, 0, [member])
        assert answer.status is RegisterStatus.REGISTERED
        segment = f"{made.segments[0].name}#transaction.{made.transaction_id.hex}"
        self.append(gateway, segment, [event])
        return member

    def commit(
        self, gateway: StreamGateway, sink: Sink, run: str, members: list[SetMember], policy: UnresolvedPolicy = "fail"
    ) -> CommitStatus:
        size = sum(member.bytes for member in members)
        answer = commit_set(gateway, sink, run, 0, members, len(members), size, on_unresolved=policy)
        return answer.status

    @pytest.mark.parametrize("dies", [(AFTER_RECORD, 1), (AFTER_ONE_COMMIT, 1), (AFTER_ONE_COMMIT, 3)])
    def test_the_next_run_rolls_forward(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink, dies: tuple[str, int]
    ) -> None:
        members = self.begun(gateway, scope, sink, "a")
        die_at(*dies)
        with pytest.raises(Died):
            self.commit(gateway, sink, "a", members)
        disarm_all()
        assert register(second, sink, "b", 0, []).status is RegisterStatus.BATCH_DECIDED
        assert self.commit(second, sink, "b", [replace(item, events=1) for item in members]) in (
            CommitStatus.COMMITTED,
            CommitStatus.ALREADY_COMMITTED,
        )
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([b"a0", b"a1", b"a2"])
        assert self.commit(gateway, sink, "a", members) is CommitStatus.ALREADY_COMMITTED
        assert commit_set(second, sink, "b", 1, [], 0, 0).status is CommitStatus.COMMITTED
        assert self.commit(gateway, sink, "a", members) is CommitStatus.FENCED

    def test_a_recorded_set_that_is_aborted_gives_way(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink
    ) -> None:
        """As when the driver was away for longer than the leases: the ones still open are aborted too."""
        members = self.begun(gateway, scope, sink, "a")
        die_at(AFTER_RECORD)
        with pytest.raises(Died):
            self.commit(gateway, sink, "a", members)
        disarm_all()
        gateway.abort_transaction(scope, "t", members[1].transaction_id)
        again = self.begun(second, scope, sink, "b")
        assert second.transaction_set(sink, 0)[0].state is SetState.REFUSED
        assert self.commit(second, sink, "b", again) is CommitStatus.COMMITTED
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([b"b0", b"b1", b"b2"])

    def mixed(self, gateway: StreamGateway, scope: str, sink: Sink) -> list[SetMember]:
        """A recorded set with one member committed, one aborted and one open."""
        members = self.begun(gateway, scope, sink, "a")
        die_at(AFTER_ONE_COMMIT)
        with pytest.raises(Died):
            self.commit(gateway, sink, "a", members)
        disarm_all()
        gateway.abort_transaction(scope, "t", members[1].transaction_id)
        return members

    def test_mixed_outcomes_stop_the_query(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink
    ) -> None:
        members = self.mixed(gateway, scope, sink)
        again = self.begun(second, scope, sink, "b")
        with pytest.raises(BatchUnresolved) as caught:
            self.commit(second, sink, "b", again)
        for member in members:
            assert str(member.transaction_id) in str(caught.value)
        assert "on_unresolved_batch=skip" in str(caught.value)
        assert second.transaction_set(sink, 0)[0].state is SetState.PENDING
        assert self.content(gateway, scope, 0) == framed([b"a0"])

    def test_mixed_outcomes_skipped(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink
    ) -> None:
        self.mixed(gateway, scope, sink)
        again = self.begun(second, scope, sink, "b")
        assert self.commit(second, sink, "b", again, "skip") is CommitStatus.ALREADY_COMMITTED
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([b"a0", b"a2"])
        assert commit_set(second, sink, "b", 1, [], 0, 0).status is CommitStatus.COMMITTED

    def test_mixed_outcomes_written_again(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink
    ) -> None:
        self.mixed(gateway, scope, sink)
        again = self.begun(second, scope, sink, "b")
        assert self.commit(second, sink, "b", again, "replay") is CommitStatus.COMMITTED
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([b"a0", b"b0", b"b1", b"b2"])

    def test_a_forgotten_transaction_is_not_taken_for_aborted(
        self, gateway: StreamGateway, second: ServiceGateway, controller: str, scope: str, sink: Sink
    ) -> None:
        """Recorded here with transactions that the controller never had, which looks like those it forgot."""
        strangers = tuple(SetMember(scope, "t", uuid.UUID(int=(7 << 40) + part), part, 1, 10) for part in range(2))
        assert self.commit(gateway, sink, "a", list(strangers)) is CommitStatus.REFUSED
        record = new_record(sink).with_pending(TransactionSet(SetState.PENDING, 0, "a", strangers, 2, 20))
        with StreamClient(controller) as client:
            table = BlockingTable(client.segments, table_segment(sink))
            table.put(key_of(sink), to_bytes(record), table.get(key_of(sink)).version)
        again = self.begun(second, scope, sink, "b")
        ids = ", ".join(str(item.transaction_id) for item in strangers)
        with pytest.raises(BatchUnresolved, match=f"unknown: {ids}"):
            self.commit(second, sink, "b", again)
        fresh = self.begun(second, scope, sink, "b")
        assert self.commit(second, sink, "b", fresh, "replay") is CommitStatus.COMMITTED
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([b"b0", b"b1", b"b2"])

    def test_two_runs_at_once_have_one_winner(
        self, gateway: StreamGateway, second: ServiceGateway, scope: str, sink: Sink
    ) -> None:
        """Both drivers commit at the same time: the newer one displaces the other, or finds the batch written."""
        first = self.begun(gateway, scope, sink, "a")
        other = self.begun(second, scope, sink, "b")
        answers: dict[str, CommitStatus] = {}

        def run(which: StreamGateway, name: str, members: list[SetMember]) -> None:
            answers[name] = self.commit(which, sink, name, members)

        threads = [
            threading.Thread(target=run, args=(gateway, "a", first)),
            threading.Thread(target=run, args=(second, "b", other)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        winner = "a" if answers["a"] is CommitStatus.COMMITTED else "b"
        assert answers in (
            {"a": CommitStatus.FENCED, "b": CommitStatus.COMMITTED},
            {"a": CommitStatus.COMMITTED, "b": CommitStatus.ALREADY_COMMITTED},
        )
        self.wait_finished(second, sink)
        assert self.content(gateway, scope, 0) == framed([f"{winner}{part}".encode() for part in range(3)])
        assert commit_set(second, sink, "b", 1, [], 0, 0).status is CommitStatus.COMMITTED
        assert commit_set(gateway, sink, "a", 2, [], 0, 0).status is CommitStatus.FENCED
