"""The state machine of sinks and sets, as tables."""

from __future__ import annotations

import dataclasses

import pytest

from controller_service.sets.sink_secrets import hash_of
from controller_service.sets.transaction_set import (
    Advance,
    AllBound,
    BatchesCleared,
    Commit,
    Event,
    MemberRecord,
    Refuse,
    RefusedSet,
    Register,
    SetRecord,
    SetRecordState,
    SinkRecord,
    Step,
    StreamsOrdered,
    Verdict,
    decision,
    forgotten,
    in_partition_order,
    open_batches_max,
    sink_key,
    step,
)
from controller_service.store.serializer import decode, encode
from pravega_common.model.sink_runs import runs_kept_max

A = MemberRecord("s/a", "0" * 31 + "a", 0, 2, 20)
B = MemberRecord("s/a", "0" * 31 + "b", 1, 3, 30)
NEW = SinkRecord("q", "s/a")


def register(batch_id: int, run_id: str = "r1") -> Register:
    return Register(run_id, batch_id, 1)


def commit(
    batch_id: int,
    run_id: str = "r1",
    members: tuple[MemberRecord, ...] = (A, B),
    events: int = 5,
    size_bytes: int = 50,
) -> Commit:
    return Commit(run_id, batch_id, members, events, size_bytes, 1)


def bound(sequence: int) -> AllBound:
    return AllBound(sequence, 1)


def refuse(sequence: int) -> Refuse:
    return Refuse(sequence, "not open", 1)


def ordered(sequence: int) -> Advance:
    return Advance(sequence, SetRecordState.ORDERED, 1)


def finished(sequence: int) -> Advance:
    return Advance(sequence, SetRecordState.FINISHED, 1)


def play(*events: Event) -> Step:
    """The last step of a history of a new sink."""
    taken = Step(NEW, Verdict.OBSOLETE)
    for event in events:
        taken = step(taken.record, event)
        assert decode(SinkRecord, encode(taken.record)) == taken.record
    return taken


DECIDED = (register(5), commit(5), bound(1), ordered(1))
R = Verdict


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        # One run, one batch after the other.
        ([register(0)], R.REGISTERED),
        ([register(0), register(0)], R.REGISTERED),
        ([commit(0)], R.BIND),
        ([commit(0), bound(1)], R.COMMITTED),
        ([commit(0), refuse(1)], R.REFUSED),
        ([commit(0), refuse(1), bound(1)], R.OBSOLETE),
        ([commit(0), bound(1), refuse(1)], R.OBSOLETE),
        ([commit(0), bound(1), bound(1)], R.OBSOLETE),
        ([commit(0), refuse(1), commit(0), bound(2)], R.COMMITTED),
        ([*DECIDED, commit(6)], R.BIND),
        ([*DECIDED, commit(9)], R.BIND),
        ([*DECIDED, register(6)], R.REGISTERED),
        # The previous set has to stand in the commit orders first.
        ([commit(0), bound(1), commit(1)], R.ORDER_PREVIOUS),
        ([commit(0), bound(1), ordered(1), commit(1)], R.BIND),
        ([commit(0), bound(1), finished(1), commit(1)], R.BIND),
        ([commit(0, members=(), events=5), bound(1), commit(1)], R.BIND),
        # The same batch again.
        ([*DECIDED, commit(5)], R.ALREADY_COMMITTED),
        ([*DECIDED, commit(5, members=())], R.ALREADY_COMMITTED),
        ([*DECIDED, commit(5, run_id="r2")], R.ALREADY_COMMITTED),
        ([*DECIDED, commit(5, events=6)], R.REPLAY_DIFFERS),
        ([*DECIDED, commit(5, size_bytes=51)], R.REPLAY_DIFFERS),
        ([*DECIDED, register(5)], R.BATCH_DECIDED),
        ([*DECIDED, register(5, "r2")], R.BATCH_DECIDED),
        # Batches below the last one.
        ([*DECIDED, commit(4)], R.CHECKPOINT_BEHIND_SINK),
        ([*DECIDED, commit(4, run_id="r2")], R.CHECKPOINT_BEHIND_SINK),
        ([*DECIDED, register(4)], R.BATCH_DECIDED),
        # Another run.
        ([register(0), commit(0, "r2"), commit(0)], R.FENCED),
        ([register(0), register(0, "r2"), commit(0, "r2")], R.BIND),
        ([register(0), register(0, "r2"), commit(0, "r2"), register(0)], R.FENCED),
        ([register(0), register(0, "r2"), commit(0), commit(0, "r2")], R.BIND),
        ([*DECIDED, commit(5, "r2"), commit(6, "r2"), commit(6)], R.FENCED),
        # Tasks introduce no run: their driver may be dead, and another one in its place.
        ([register(0), register(0, "r2"), register(0)], R.REGISTERED),
        ([register(0), register(0, "r2"), commit(0)], R.BIND),
        ([*DECIDED, register(6, "zombie"), commit(6)], R.BIND),
        ([commit(0), register(0, "zombie"), bound(1)], R.COMMITTED),
        # A run whose tasks were seen earlier is older, also if its driver comes later.
        ([register(0, "zombie"), register(0), commit(0), commit(0, "zombie")], R.FENCED),
        ([register(0, "zombie"), commit(0, members=()), register(0, "zombie")], R.FENCED),
        ([*DECIDED, register(6, "zombie"), register(6, "r2"), commit(6, "r2"), commit(6, "zombie")], R.FENCED),
        # A driver that was stopped before its first call, and repeats what the present run did, displaces nobody.
        ([*DECIDED, commit(5, "zombie"), commit(6)], R.BIND),
        ([*DECIDED, register(5, "zombie"), commit(5, "zombie"), register(6)], R.REGISTERED),
        ([*DECIDED, commit(6), commit(5, "zombie"), bound(2)], R.COMMITTED),
        # A run that is refused takes nothing over.
        ([*DECIDED, commit(4, "r2"), commit(6)], R.BIND),
        ([*DECIDED, commit(5, "r2", events=9), commit(6)], R.BIND),
        ([commit(0), commit(0, "r2"), bound(1)], R.OBSOLETE),
        ([commit(0), commit(0, "r2"), bound(2)], R.COMMITTED),
        # A pending set gives way to a different request, not to the same one.
        ([commit(0), commit(0, members=(A,)), bound(1)], R.OBSOLETE),
        ([commit(0), commit(0), bound(1)], R.COMMITTED),
        ([commit(0), commit(0, members=(B, A)), bound(1)], R.COMMITTED),
        # Progress of a set that is not the last any more.
        ([*DECIDED, commit(6), bound(2), finished(1)], R.OBSOLETE),
        ([*DECIDED, commit(6), bound(2), finished(2)], R.RECORDED),
    ],
)
def test_what_a_history_leads_to(history: list[Event], verdict: Verdict) -> None:
    assert play(*history).verdict is verdict


MINE, THEIRS = hash_of(b"m" * 32), hash_of(b"t" * 32)


@pytest.mark.parametrize("shown", ["", THEIRS])
@pytest.mark.parametrize(
    "history",
    [(register(0),), (commit(0),), (register(0), commit(0), bound(1), ordered(1)), (*DECIDED, register(6))],
)
def test_a_stranger_changes_nothing(history: tuple[Event, ...], shown: str) -> None:
    proved = [
        dataclasses.replace(event, secret_hash=MINE) if isinstance(event, Register | Commit) else event
        for event in history
    ]
    before = play(*proved).record
    assert before.secret_hash == MINE
    for event in (register(0), register(7, "r2"), commit(5), commit(7, "r2"), commit(2**63 - 1, "r2", members=())):
        taken = step(before, dataclasses.replace(event, secret_hash=shown))
        assert taken.verdict is Verdict.STRANGER and taken.record == before and "--secret-only" in taken.detail
        assert MINE not in taken.detail and THEIRS not in taken.detail
        assert step(before, dataclasses.replace(event, secret_hash=MINE)).verdict is not Verdict.STRANGER


def test_a_sink_of_an_older_version_takes_the_secret_of_its_next_run() -> None:
    """But not that of a call which is refused: of a run that was displaced, or whose batch is not the sink's."""
    data = b'{"_v":1,"query_id":"q","destination":"s/a","runs":["r1","r2"],"open_batches":[0]}'
    old = decode(SinkRecord, data)
    assert step(old, dataclasses.replace(register(0), secret_hash=THEIRS)).record.secret_hash == ""
    assert step(old, dataclasses.replace(register(0, "r3"), secret_hash=MINE)).record.secret_hash == MINE
    decided = play(*DECIDED).record
    for event in (commit(4, "r2"), commit(5, "r2", events=9)):
        assert step(decided, dataclasses.replace(event, secret_hash=THEIRS)).record == decided
    for own in (commit(5, "r2"), commit(6, "r2"), register(5, "r2"), register(6, "r2")):
        assert step(decided, dataclasses.replace(own, secret_hash=MINE)).record.secret_hash == MINE


def test_the_label_of_the_last_commit_is_kept_and_decides_nothing() -> None:
    named = dataclasses.replace(commit(0), label="orders")
    record = play(register(0), named, bound(1), ordered(1), finished(1)).record
    assert record.label == "orders" and decode(SinkRecord, encode(record)).label == "orders"
    assert step(record, dataclasses.replace(named, label="other")).verdict is Verdict.ALREADY_COMMITTED
    assert step(record, commit(1)).record.label == "", "the next batch has no name"
    old = decode(SinkRecord, b'{"_v":1,"query_id":"q","destination":"s/a"}')
    assert old.label == ""


def test_a_forgotten_sink_begins_anew_and_gives_no_number_twice() -> None:
    record = forgotten(play(*DECIDED, finished(1)).record, 7)
    assert (record.last_batch_id, record.runs, record.secret_hash, record.sequence) == (-1, (), "", 1)
    taken = step(record, commit(0, "r9"))
    assert taken.verdict is Verdict.BIND and taken.set is not None and taken.set.sequence == 2


def test_fenced_steps_change_nothing() -> None:
    before = play(register(0), register(0, "r2"), commit(0, "r2")).record
    assert (before.runs, before.seen_runs) == (("r1", "r2"), ())
    for event in (register(0), register(3), commit(0), commit(7)):
        assert step(before, event).record == before


def test_the_commit_point_replaces_pending_by_last() -> None:
    pending = play(register(3), commit(3)).record
    assert pending.pending is not None and pending.last is None and pending.holds(1)
    committed = step(pending, bound(1)).record
    assert committed.pending is None and committed.last is not None
    assert (committed.last.batch_id, committed.last.members, committed.last.events) == (3, (A, B), 5)
    assert committed.holds(1) and committed.decided_batches == (3,)
    assert step(committed, BatchesCleared((3,), 1)).record.open_batches == ()


def test_a_sequence_is_never_given_twice() -> None:
    record = play(commit(0), refuse(1), commit(0), commit(0, members=(A,)), refuse(3), commit(1)).record
    assert record.sequence == 4 and record.pending is not None and record.pending.sequence == 4
    assert not any(map(record.holds, (1, 2, 3))) and record.holds(4)


def test_members_are_kept_in_partition_order() -> None:
    members = tuple(dataclasses.replace(A, transaction=f"{index:032x}", partition=9 - index) for index in range(10))
    record = play(commit(0, members=members, events=100, size_bytes=1000)).record
    assert record.pending is not None
    assert [member.partition for member in record.pending.members] == list(range(10))
    assert in_partition_order(reversed(members)) == record.pending.members  # type: ignore[arg-type]


def test_an_empty_set_is_finished_with_its_commit() -> None:
    record = play(commit(0, members=(), events=0, size_bytes=0), bound(1)).record
    assert record.last is not None and record.last.state is SetRecordState.FINISHED


def test_streams_are_noted_while_others_have_no_order() -> None:
    other = dataclasses.replace(B, stream="s/b")
    record = play(commit(0, members=(A, other)), bound(1), StreamsOrdered(1, ("s/a",), 1)).record
    assert record.last is not None and record.last.unordered == (other,)
    for obsolete in (StreamsOrdered(2, ("s/b",), 1), StreamsOrdered(1, ("s/a",), 1)):
        assert step(record, obsolete).record == record
    assert decode(SinkRecord, encode(record)) == record
    done = step(record, ordered(1)).record
    assert step(done, StreamsOrdered(1, ("s/b",), 1)).record == done


def test_progress_never_goes_back() -> None:
    record = play(commit(0), bound(1), finished(1), ordered(1)).record
    assert record.last is not None and record.last.state is SetRecordState.FINISHED


def test_only_the_last_runs_are_recognised() -> None:
    history: list[Event] = [commit(0, f"r{index}") for index in range(runs_kept_max + 1)]
    assert play(*history, register(0, "r1")).verdict is Verdict.FENCED
    assert play(*history, register(0, "r0")).verdict is Verdict.REGISTERED


def test_runs_that_were_only_seen_are_bounded() -> None:
    record = play(commit(0), *(register(0, f"r{index}") for index in range(2, runs_kept_max + 3))).record
    assert record.seen_runs == tuple(f"r{index}" for index in range(3, runs_kept_max + 3)) and record.runs == ("r1",)


def test_a_record_without_seen_runs_is_read() -> None:
    """As versions wrote it in which a task introduced its run."""
    data = b'{"_v":1,"query_id":"q","destination":"s/a","runs":["r1","r2"],"open_batches":[0]}'
    old = decode(SinkRecord, data)
    assert step(old, register(0)).verdict is Verdict.FENCED
    assert step(old, register(0, "r2")).verdict is Verdict.REGISTERED


def test_open_batches_are_bounded_and_named() -> None:
    history: list[Event] = [register(index) for index in range(open_batches_max)]
    taken = play(*history, register(open_batches_max))
    assert taken.verdict is Verdict.TOO_MANY_BATCHES and str(open_batches_max) in taken.detail
    assert play(*history, register(0)).verdict is Verdict.REGISTERED


def test_decisions() -> None:
    assert decision(None, 0) is None
    record = play(*DECIDED, commit(6)).record
    committed, pending = decision(record, 5), decision(record, 6)
    assert isinstance(committed, SetRecord) and committed.state is SetRecordState.ORDERED
    assert isinstance(pending, SetRecord) and pending.state is SetRecordState.PENDING
    assert decision(record, 4) is None and decision(record, 7) is None
    refused = decision(step(record, refuse(2)).record, 6)
    assert isinstance(refused, RefusedSet) and refused.detail == "not open"
    displaced = decision(step(record, commit(7, "r2")).record, 6)
    assert isinstance(displaced, RefusedSet) and "r2" in displaced.detail


def test_differing_replays_name_both_counts() -> None:
    detail = play(*DECIDED, commit(5, events=6, size_bytes=61)).detail
    assert all(number in detail for number in ("5 events", "50 bytes", "6 events", "61 bytes"))


def test_sinks_never_share_a_key() -> None:
    pairs = [("a", "b:c"), ("a:b", "c"), ("1:a", "b"), ("", "1:a:b"), ("a", ""), ("", "a")]
    assert len({sink_key(*pair) for pair in pairs}) == len(pairs)
