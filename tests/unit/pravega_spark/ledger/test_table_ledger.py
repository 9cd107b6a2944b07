"""Batches on a plain Pravega, one driver after the other: leases, lost answers, crashes between any two calls."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.model.transaction_sets import CommitStatus, RegisterStatus, Registration, SetMember, SetState, Sink
from pravega_common.model.transactions import TransactionState
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration, UnresolvedPolicy
from pravega_spark.ledger.batch_members import lease_ms, lease_ms_fallback
from pravega_spark.ledger.lease_extender import LeaseExtender
from pravega_spark.ledger.record import BatchUnresolved
from pravega_spark.ledger.table_ledger import TableLedger
from tests.support.fakes.plain_pravega import PlainPravega

SINK = Sink("query", "scope/stream")
OPEN, COMMITTED, ABORTED = TransactionState.OPEN, TransactionState.COMMITTED, TransactionState.ABORTED


class Died(BaseException):
    """The driver's process is gone."""


@pytest.fixture
def store() -> PlainPravega:
    return PlainPravega()


def register(sets: TableLedger, run: str, member: SetMember, batch_id: int = 0) -> Registration:
    return sets.register(BatchRegistration(BatchIdentity(SINK, run, batch_id), (member,)))


def begun(store: PlainPravega, sets: TableLedger, run: str, batch_id: int = 0, count: int = 3) -> list[SetMember]:
    members = [store.begin(partition) for partition in range(count)]
    for item in members:
        assert register(sets, run, item, batch_id).status is RegisterStatus.REGISTERED
    return members


def commit(
    sets: TableLedger,
    run: str,
    members: list[SetMember],
    batch_id: int = 0,
    events: int = 3,
    policy: UnresolvedPolicy = "fail",
) -> CommitStatus:
    return sets.commit(BatchCommit(BatchIdentity(SINK, run, batch_id), tuple(members), events, 30, policy)).status


def states(store: PlainPravega, members: list[SetMember]) -> list[TransactionState]:
    return [store.state(item) for item in members]


def at(call: str, when: str, hit: int, action: Callable[[], None]) -> Callable[[str, str], None]:
    """A ``watch`` that acts at one call."""
    left = hit

    def watch(name: str, phase: str) -> None:
        nonlocal left
        if (name, phase) == (call, when):
            left -= 1
            if left == 0:
                action()

    return watch


def die() -> None:
    raise Died


def lose_the_answer() -> None:
    raise UnknownOutcome("the connection is lost")


def test_a_batch_and_its_replay(store: PlainPravega) -> None:
    sets = store.sets()
    members = begun(store, sets, "a")
    assert commit(sets, "a", members) is CommitStatus.COMMITTED
    assert states(store, members) == [COMMITTED] * 3
    assert sets.get(SINK, 0)[0].state is SetState.FINISHED
    again = store.sets()
    late = store.begin()
    assert register(again, "b", late).status is RegisterStatus.BATCH_DECIDED
    assert commit(again, "b", [late]) is CommitStatus.ALREADY_COMMITTED
    assert commit(again, "b", [late], events=4) is CommitStatus.REPLAY_DIFFERS
    assert store.state(late) is OPEN
    assert commit(again, "b", [], batch_id=2) is CommitStatus.COMMITTED
    assert commit(again, "b", [], batch_id=1) is CommitStatus.CHECKPOINT_BEHIND_SINK
    assert commit(sets, "a", [], batch_id=3) is CommitStatus.FENCED


def test_a_batch_that_another_run_writes_meanwhile_is_not_this_commits(store: PlainPravega) -> None:
    """The answer tells the sink to abort its own transactions, which their leases would keep open."""
    first, second = store.sets(), store.sets()
    members, others = begun(store, first, "a"), begun(store, second, "b")
    store.watch = at("put", "before", 1, lambda: check_committed(commit(first, "a", members)))
    assert commit(second, "b", others) is CommitStatus.ALREADY_COMMITTED
    assert (states(store, members), states(store, others)) == ([COMMITTED] * 3, [OPEN] * 3)


def check_committed(status: CommitStatus) -> None:
    assert status is CommitStatus.COMMITTED


def test_what_is_readable_is_remembered_for_one_batch(store: PlainPravega) -> None:
    """While it is waited for: a driver commits millions of transactions in one process."""
    sets = store.sets()
    for batch_id in range(20):
        assert commit(sets, "a", begun(store, sets, "a", batch_id, count=2), batch_id) is CommitStatus.COMMITTED
        assert sets.get(SINK, batch_id)[0].state is SetState.FINISHED
    assert len(sets._members._readable) <= 2


def test_only_what_is_not_readable_yet_is_asked_for_again(store: PlainPravega) -> None:
    sets = store.sets()
    members = begun(store, sets, "a", count=3)
    commit(sets, "a", members)
    asked: list[str] = []
    store.transactions[members[2].transaction_id].state = TransactionState.COMMITTING
    store.watch = lambda name, phase: asked.append(name) if phase == "before" else None
    assert sets.get(SINK, 0)[0].state is SetState.COMMITTED
    assert asked.count("state") == 3
    asked.clear()
    store.transactions[members[2].transaction_id].state = COMMITTED
    assert sets.get(SINK, 0)[0].state is SetState.FINISHED
    assert asked.count("state") == 1


def calls_of_a_commit() -> list[tuple[str, str, int]]:
    """Every call that a commit of three members makes, with its number among its kind."""
    store = PlainPravega()
    sets = store.sets()
    members = begun(store, sets, "a")
    seen: list[tuple[str, str, int]] = []

    def watch(name: str, phase: str) -> None:
        seen.append((name, phase, 1 + sum(item[:2] == (name, phase) for item in seen)))

    store.watch = watch
    commit(sets, "a", members)
    return seen


@pytest.mark.parametrize("away_s", [0.0, 3600.0])
@pytest.mark.parametrize("point", calls_of_a_commit())
def test_killed_at_every_call(store: PlainPravega, point: tuple[str, str, int], away_s: float) -> None:
    """The next run writes the batch, or finds it written, also when all leases ran out meanwhile; only a commit cut
    off between its members cannot be decided after that, and says so."""
    first = store.sets()
    members = begun(store, first, "a")
    store.watch = at(*point, die)
    with pytest.raises(Died):
        commit(first, "a", members)
    store.watch = lambda call, when: None
    found = states(store, members)
    store.now_s += away_s
    partial = away_s > 0 and OPEN in found and COMMITTED in found
    second = store.sets()
    again = [store.begin(partition) for partition in range(2)]
    answers = [register(second, "b", item).status for item in again]
    if partial:
        with pytest.raises(BatchUnresolved):
            commit(second, "b", again)
        return
    assert commit(second, "b", again) in (CommitStatus.COMMITTED, CommitStatus.ALREADY_COMMITTED)
    outcome = {*states(store, members)}, {*states(store, again)}
    if answers[0] is RegisterStatus.BATCH_DECIDED:
        assert outcome == ({COMMITTED}, {OPEN})
    else:
        assert outcome[1] == {COMMITTED}
        assert COMMITTED not in outcome[0]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("hit", [1, 2])
def test_a_lost_answer_about_the_record_is_looked_up(store: PlainPravega, when: str, hit: int) -> None:
    sets = store.sets()
    members = begun(store, sets, "a")
    store.watch = at("put", when, hit, lose_the_answer)
    assert commit(sets, "a", members) is CommitStatus.COMMITTED
    assert states(store, members) == [COMMITTED] * 3
    assert sets.get(SINK, 0) == (sets.get(SINK, 0)[0], 0)


def test_a_member_that_is_not_open_refuses_the_set_before_anything(store: PlainPravega) -> None:
    sets = store.sets()
    members = begun(store, sets, "a")
    store.abort_transaction("", "", members[2].transaction_id)
    decision = sets.commit(BatchCommit(BatchIdentity(SINK, "a", 0), tuple(members), 3, 30))
    assert decision.status is CommitStatus.REFUSED
    assert f"transaction {members[2].transaction_id} is aborted" in decision.detail
    assert sets.get(SINK, 0)[0].state is SetState.NONE


def test_the_largest_lease_and_a_smaller_one(store: PlainPravega) -> None:
    sets = store.sets()
    member = store.begin()
    assert register(sets, "a", member).renewed_for_ms == lease_ms == 600_000
    assert store.transactions[member.transaction_id].lease_ends_s == 600
    store.lease_max_ms = 120_000
    other = store.begin()
    assert register(sets, "a", other).renewed_for_ms == lease_ms_fallback
    assert store.transactions[other.transaction_id].lease_ends_s == lease_ms_fallback / 1000


def test_a_driver_that_slept_through_the_leases_commits_nothing(store: PlainPravega) -> None:
    """Between its record and its first commit."""
    sets = store.sets()
    members = begun(store, sets, "a")

    def sleep() -> None:
        store.now_s += 1000

    store.watch = at("put", "after", 1, sleep)
    assert commit(sets, "a", members) is CommitStatus.REFUSED
    assert states(store, members) == [ABORTED] * 3
    assert sets.get(SINK, 0)[0].state is SetState.REFUSED


def test_one_aborted_member_ends_a_set_of_which_nothing_is_committed(store: PlainPravega) -> None:
    first = store.sets()
    members = begun(store, first, "a")
    store.watch = at("put", "after", 1, die)
    with pytest.raises(Died):
        commit(first, "a", members)
    store.watch = lambda call, when: None
    store.abort_transaction("", "", members[0].transaction_id)
    second = store.sets()
    again = begun(store, second, "b")
    assert states(store, members) == [ABORTED] * 3
    assert commit(second, "b", again) is CommitStatus.COMMITTED


def left_by_a_death(store: PlainPravega, call: str, when: str, hit: int) -> list[SetMember]:
    """The members of a batch whose driver died at one call of its commit."""
    first = store.sets()
    members = begun(store, first, "a")
    store.watch = at(call, when, hit, die)
    with pytest.raises(Died):
        commit(first, "a", members)
    store.watch = lambda call, when: None
    return members


def left_unknown(store: PlainPravega) -> list[SetMember]:
    """Recorded, all committed, and forgotten before anybody marked the set as committed."""
    members = left_by_a_death(store, "put", "before", 2)
    assert states(store, members) == [COMMITTED] * 3
    store.now_s += 3 * 24 * 3600
    return members


def test_unknown_is_never_read_as_aborted(store: PlainPravega) -> None:
    members = left_unknown(store)
    sets = store.sets()
    again = begun(store, sets, "b")
    with pytest.raises(BatchUnresolved, match=f"unknown: {members[0].transaction_id}"):
        commit(sets, "b", again)
    assert states(store, again) == [ABORTED] * 3
    assert sets.get(SINK, 0)[0].state is SetState.PENDING


def test_an_unknown_batch_taken_as_written(store: PlainPravega) -> None:
    left_unknown(store)
    sets = store.sets()
    again = begun(store, sets, "b")
    assert commit(sets, "b", again, events=99, policy="skip") is CommitStatus.ALREADY_COMMITTED
    assert COMMITTED not in states(store, again)
    assert sets.get(SINK, 0)[0].state is SetState.FINISHED
    assert commit(sets, "b", begun(store, sets, "b", 1), batch_id=1) is CommitStatus.COMMITTED


def test_an_unknown_batch_written_again(store: PlainPravega) -> None:
    left_unknown(store)
    sets = store.sets()
    again = begun(store, sets, "b")
    assert commit(sets, "b", again, policy="replay") is CommitStatus.COMMITTED
    assert states(store, again) == [COMMITTED] * 3


def torn(store: PlainPravega) -> list[SetMember]:
    """Recorded; one is committed, one ended with its lease, one is open."""
    members = left_by_a_death(store, "commit", "after", 1)
    store.abort_transaction("scope", "stream", members[1].transaction_id)
    assert states(store, members) == [COMMITTED, ABORTED, OPEN]
    return members


def test_a_torn_batch_taken_as_written_has_all_that_was_open(store: PlainPravega) -> None:
    """Also when the driver sleeps between asking for the states and committing, so that it has to ask again."""
    members = torn(store)
    sets = store.sets()
    again = begun(store, sets, "b")

    def sleep() -> None:
        store.now_s += lease_ms / 1000 / 3

    store.watch = at("ping", "after", 2 * len(members), sleep)
    assert commit(sets, "b", again, policy="skip") is CommitStatus.ALREADY_COMMITTED
    assert states(store, members) == [COMMITTED, ABORTED, COMMITTED]


def test_an_older_unknown_batch_does_not_stop_a_later_version_for_ever(store: PlainPravega) -> None:
    """A batch write under ``txn_version`` 1 after version 0 was left unknown: nothing of version 0 is written here."""
    left_unknown(store)
    sets = store.sets()
    with pytest.raises(BatchUnresolved):
        commit(sets, "b", begun(store, sets, "b", 1), batch_id=1)
    assert commit(sets, "b", begun(store, sets, "b", 1), batch_id=1, policy="replay") is CommitStatus.COMMITTED
    assert sets.get(SINK, 1)[1] == 1


def test_a_controller_that_fails_leaves_the_record_to_the_next_call(store: PlainPravega) -> None:
    sets = store.sets()
    members = begun(store, sets, "a")

    def fail() -> None:
        raise Unavailable("no controller answers")

    store.watch = at("commit", "before", 2, fail)
    with pytest.raises(Unavailable):
        commit(sets, "a", members)
    assert sets.get(SINK, 0)[0].state is SetState.PENDING
    assert commit(sets, "a", members) is CommitStatus.ALREADY_COMMITTED
    assert states(store, members) == [COMMITTED] * 3


def test_a_late_task_of_a_decided_batch_leaves_the_record_as_it_is(store: PlainPravega) -> None:
    sets = store.sets()
    assert commit(sets, "b", begun(store, sets, "b")) is CommitStatus.COMMITTED
    before = {name: dict(table) for name, table in store.tables.items()}
    assert register(sets, "a", store.begin()).status is RegisterStatus.BATCH_DECIDED
    assert store.tables == before


def test_sinks_are_listed(store: PlainPravega) -> None:
    sets = store.sets()
    assert sets.list_sinks("scope") == []
    commit(sets, "a", begun(store, sets, "a"))
    (record,) = sets.list_sinks("scope")
    assert (record.sink, record.last_committed_batch_id, record.run_id) == (SINK, 0, "a")
    assert (record.last_set.state, record.last_set.events) == (SetState.COMMITTED, 3)


def test_leases_are_extended_until_a_transaction_ends(store: PlainPravega) -> None:
    asked: list[uuid.UUID] = []
    members = [store.begin(), store.begin()]

    def renew(member: SetMember) -> bool:
        asked.append(member.transaction_id)
        if len(asked) == 2:
            raise Unavailable("no controller answers")
        return store.state(member) is OPEN

    extender = LeaseExtender(renew, 600.0)
    extender.add(members)
    try:
        assert extender.renew_all() == 2
        store.abort_transaction("", "", members[0].transaction_id)
        assert extender.renew_all() == 1
        assert extender.renew_all() == 1
        assert asked[-1] == members[1].transaction_id
    finally:
        extender.stop()
