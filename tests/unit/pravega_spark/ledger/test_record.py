"""The record of a sink on a plain Pravega: its bytes, and what follows from it."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.sink_runs import runs_kept_max
from pravega_common.model.transaction_sets import SetMember, SetState, Sink, TransactionSet
from pravega_spark.ledger.record import (
    CommitStep,
    LedgerRecord,
    MemberStatus,
    RecoveryStep,
    commit_step,
    from_bytes,
    key_of,
    new_record,
    recovery_step,
    table_segment,
    to_bytes,
    unresolved_text,
)

SINK = Sink("query", "scope/stream")
GOLDEN = (
    b'{"version":2,"query":"query","destination":"scope/stream","touched_ms":0,"runs":["a"],"seen":["b"],"last_batch":7,'
    b'"last_events":21,"last_bytes":201,"state":"COMMITTED","batch":7,"run":"a","events":21,"bytes":201,'
    b'"streams":[["scope","stream"]],"members":[[0,"00000000000000000000000000000000",0,10,100],'
    b'[0,"00000000000000000000000000000001",1,11,101]]}'
)
GOLDEN_1 = (
    b'{"version":1,"query":"query","destination":"scope/stream","touched_ms":0,"runs":["a"],"last_batch":7,'
    b'"last_events":21,"last_bytes":201,"state":"COMMITTED","batch":7,"run":"a","events":21,"bytes":201,'
    b'"streams":[["scope","stream"]],"members":[[0,"00000000000000000000000000000000",0,10,100],'
    b'[0,"00000000000000000000000000000001",1,11,101]]}'
)
OPEN, COMMITTED, ABORTED, UNKNOWN = MemberStatus


def member(number: int, stream: str = "stream") -> SetMember:
    return SetMember("scope", stream, uuid.UUID(int=number), number, 10 + number, 100 + number)


def wanted(batch_id: int = 0, run: str = "a", events: int = 21, count: int = 2) -> TransactionSet:
    members = tuple(member(number) for number in range(count))
    return TransactionSet(SetState.PENDING, batch_id, run, members, events, 201)


def committed(batch_id: int = 0, run: str = "a") -> LedgerRecord:
    return new_record(SINK).with_pending(wanted(batch_id, run)).with_outcome(SetState.COMMITTED)


GIVEN = committed(7).seeing("b")


def test_bytes_come_back() -> None:
    two_streams = replace(wanted(), members=(member(0), member(1, "other"), member(2)))
    written = replace(committed(4).seeing("b").with_pending(two_streams), touched_ms=1_700_000_000_000)
    for record in (new_record(SINK), committed(), written):
        assert from_bytes(to_bytes(record)) == record


def test_golden_bytes() -> None:
    assert to_bytes(GIVEN) == GOLDEN
    assert from_bytes(GOLDEN) == GIVEN


def test_a_record_of_the_first_version_is_read() -> None:
    assert from_bytes(GOLDEN_1) == committed(7)


def test_the_name_of_a_query_comes_back_and_is_not_trusted() -> None:
    named = GIVEN.called("orders")
    assert named == GIVEN and from_bytes(to_bytes(named)).sink.label == "orders"
    assert from_bytes(to_bytes(named.called(""))).sink.label == "" and to_bytes(named.called("")) == GOLDEN
    strange = json.dumps({**json.loads(GOLDEN), "label": "\x1b[2J" + "x" * 999})
    assert from_bytes(strange.encode()).sink.label == "[2J" + "x" * 197


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_1])
@pytest.mark.parametrize("length", range(0, 330, 7))
def test_a_record_that_is_cut_is_refused(golden: bytes, length: int) -> None:
    with pytest.raises(DataCorruption, match="record of a sink cannot be read"):
        from_bytes(golden[:length])


@pytest.mark.parametrize(
    ("golden", "name"), [(golden, name) for golden in (GOLDEN, GOLDEN_1) for name in json.loads(golden)]
)
def test_a_record_without_a_field_is_refused(golden: bytes, name: str) -> None:
    value = json.loads(golden)
    del value[name]
    with pytest.raises(DataCorruption, match="record of a sink cannot be read"):
        from_bytes(json.dumps(value).encode())


def test_damage_and_newer_versions_are_named() -> None:
    data = to_bytes(committed())
    for damaged in (
        b"",
        b"{}",
        data[:-5],
        data.replace(b'"members"', b'"others"'),
        data.replace(b"COMMITTED", b"WHAT"),
    ):
        with pytest.raises(DataCorruption, match="record of a sink cannot be read"):
            from_bytes(damaged)
    with pytest.raises(
        InvalidArgument, match="version 3, this connector reads versions 1 to 2; use the connector that"
    ):
        from_bytes(data.replace(b'"version":2', b'"version":3'))


def test_too_many_members_are_refused_with_the_remedy() -> None:
    assert len(to_bytes(new_record(SINK).with_pending(wanted(count=10_000)))) < 1_000_000
    with pytest.raises(InvalidArgument, match=r"20000 transactions.*coalesce"):
        to_bytes(new_record(SINK).with_pending(wanted(count=20_000)))


def test_one_table_per_scope_and_one_key_per_sink() -> None:
    assert table_segment(SINK) == "scope/pravega-spark-sinks_kvtable/0.#epoch.0"
    assert table_segment(Sink("query", "scope/*")) == table_segment(SINK)
    assert len({key_of(Sink("a", "b/c")), key_of(Sink('a","b', "c")), key_of(Sink("a", "b/cd"))}) == 3
    with pytest.raises(InvalidArgument, match="at most 8192"):
        key_of(Sink("x" * 9000, "scope/stream"))


def test_a_run_displaces_with_its_first_set() -> None:
    record = committed(run="a").seeing("b")
    assert record.seeing("b") is record and record.seeing("a") is record
    assert not record.is_displaced("a") and not record.is_displaced("b")
    record = record.with_pending(wanted(1, "b"))
    assert record.is_displaced("a") and not record.is_displaced("b")
    for number in range(40):
        record = record.with_pending(wanted(number, str(number))).seeing(f"late-{number}")
    assert (len(record.runs.introduced), len(record.runs.seen)) == (runs_kept_max, 1)
    assert record.runs.present == "39"


@pytest.mark.parametrize(
    ("record", "asked", "follows"),
    [
        (new_record(SINK), wanted(), CommitStep.PUT),
        (new_record(SINK).seeing("a").seeing("b"), wanted(), CommitStep.PUT),
        (committed(2).seeing("b"), wanted(3), CommitStep.PUT),
        (committed(2).with_pending(wanted(3, "b")).with_outcome(SetState.REFUSED), wanted(3), CommitStep.FENCED),
        (new_record(SINK).with_pending(wanted()), wanted(), CommitStep.ROLL_FORWARD),
        (new_record(SINK).with_pending(wanted(3)), wanted(1), CommitStep.ROLL_FORWARD),
        (new_record(SINK).with_pending(wanted()).seeing("b"), wanted(), CommitStep.ROLL_FORWARD),
        (committed(2).with_pending(wanted(3, "b")), wanted(), CommitStep.FENCED),
        (committed(2), wanted(3), CommitStep.PUT),
        (committed(2), wanted(2), CommitStep.COMMITTED_ALREADY),
        (committed(2), wanted(2, events=5), CommitStep.DIFFERS),
        (committed(2), wanted(1), CommitStep.BEHIND),
        (committed(2).with_pending(wanted(3)).with_outcome(SetState.REFUSED), wanted(3), CommitStep.PUT),
        (committed(2).with_pending(wanted(3)).with_outcome(SetState.REFUSED), wanted(2), CommitStep.COMMITTED_ALREADY),
        (committed(2).with_pending(wanted(3)).with_outcome(SetState.REFUSED), wanted(2, events=1), CommitStep.DIFFERS),
    ],
)
def test_what_a_commit_does(record: LedgerRecord, asked: TransactionSet, follows: CommitStep) -> None:
    assert commit_step(record, asked) is follows


@pytest.mark.parametrize(
    ("states", "follows"),
    [
        ([], RecoveryStep.COMMITTED),
        ([OPEN, OPEN], RecoveryStep.COMMIT),
        ([COMMITTED, OPEN], RecoveryStep.COMMIT),
        ([COMMITTED, COMMITTED], RecoveryStep.COMMITTED),
        ([ABORTED, OPEN], RecoveryStep.ABORT),
        ([ABORTED, ABORTED], RecoveryStep.ABORTED),
        ([ABORTED, COMMITTED], RecoveryStep.UNRESOLVED),
        ([ABORTED, COMMITTED, OPEN], RecoveryStep.UNRESOLVED),
        ([UNKNOWN, UNKNOWN], RecoveryStep.UNRESOLVED),
        ([UNKNOWN, ABORTED], RecoveryStep.UNRESOLVED),
        ([UNKNOWN, COMMITTED], RecoveryStep.UNRESOLVED),
        ([UNKNOWN, OPEN], RecoveryStep.UNRESOLVED),
    ],
)
def test_what_the_states_of_a_set_call_for(states: list[MemberStatus], follows: RecoveryStep) -> None:
    assert recovery_step({uuid.UUID(int=number): state for number, state in enumerate(states)}) is follows


def test_a_set_on_record_and_none() -> None:
    record = committed(2).with_pending(wanted(3))
    assert record.set_of(3).state is SetState.PENDING
    assert (record.set_of(2).state, record.set_of(2).events) == (SetState.COMMITTED, 21)
    assert record.set_of(1).state is SetState.NONE


def test_ids_are_named_up_to_a_limit() -> None:
    states = {uuid.UUID(int=number): ABORTED for number in range(12)} | {uuid.UUID(int=99): COMMITTED}
    text = unresolved_text(SINK, wanted(3), states)
    assert "batch 3 of query into scope/stream" in text
    assert f"committed: {uuid.UUID(int=99)}" in text
    assert str(uuid.UUID(int=9)) in text
    assert str(uuid.UUID(int=10)) not in text
    assert "and 2 more" in text
