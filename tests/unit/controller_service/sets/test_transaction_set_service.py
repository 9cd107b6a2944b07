"""Sets of transactions through the service, without crashes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import pytest

from controller_service.sets import set_sweep
from controller_service.sets.set_sweep import pending_max_ms, undecided_grace_ms
from controller_service.sets.sink_index import day_ms
from controller_service.sets.sink_store import REGISTRATIONS_TABLE, SETS_TABLE, FoundSink
from controller_service.sets.transaction_set import (
    MemberRecord,
    SetRecord,
    SetRecordState,
    SinkRecord,
    Verdict,
)
from controller_service.sets.transaction_set_service import (
    CommitAnswer,
    RegisterAnswer,
    readable_wait_max_ms,
    record_kept_ms,
    sweep_period_s,
)
from controller_service.store.versioned_store import ABSENT
from controller_service.transactions.lifecycle import lease_grace_s
from pravega_common.errors import InvalidArgument
from pravega_common.model.transactions import TransactionState
from tests.support.transaction_world import Crashed, Instance, World, event_bytes

S, T, U = "scope", "stream", "other"
Q, D = "query", "scope/stream"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def one(world: World) -> Instance:
    return await world.instance()


async def members_of(
    world: World, instance: Instance, label: str, count: int, stream: str = T, lease_ms: int = 30_000
) -> list[MemberRecord]:
    return [
        await world.member(instance, S, stream, f"{label}.{partition}", partition, lease_ms)
        for partition in range(count)
    ]


async def register(
    world: World, instance: Instance, batch: int, members: Sequence[MemberRecord], run: str = "r1"
) -> RegisterAnswer:
    return await world.run(instance.sets.register(Q, D, run, batch, members))


async def commit(
    world: World,
    instance: Instance,
    batch: int,
    members: Sequence[MemberRecord],
    run: str = "r1",
    events: int | None = None,
) -> CommitAnswer:
    count = len(members) if events is None else events
    return await world.run(instance.sets.commit(Q, D, run, batch, members, count, count * event_bytes))


async def finished(world: World, instance: Instance, batch: int) -> None:
    async def wait() -> None:
        while True:
            found = (await instance.sets.get(Q, D, batch)).decision
            if isinstance(found, SetRecord) and found.state is SetRecordState.FINISHED:
                return
            await world.clock.sleep(0.01)

    await world.run(wait(), 300)


async def state_of(world: World, instance: Instance, member: MemberRecord) -> TransactionState:
    scope, stream = member.stream.split("/")
    return await world.run(instance.transactions.transaction_state(scope, stream, uuid.UUID(hex=member.transaction)))


async def test_batches_become_readable_in_order_and_orphans_end(world: World, one: Instance) -> None:
    for batch in range(3):
        members = await members_of(world, one, f"b{batch}", 4)
        orphan = await world.member(one, S, T, f"orphan{batch}", 1)
        answer = await register(world, one, batch, [*members, orphan])
        assert (answer.verdict, answer.last_batch_id) == (Verdict.REGISTERED, batch - 1)
        assert answer.renewed_for_ms == undecided_grace_ms
        taken = await commit(world, one, batch, list(reversed(members)))
        assert taken.verdict is Verdict.COMMITTED and taken.set is not None and len(taken.set.members) == 4
        await finished(world, one, batch)
        await world.clock.pass_time(1)
        assert await state_of(world, one, orphan) is TransactionState.ABORTED
    expected = [f"b{batch}.{partition}" for batch in range(3) for partition in range(4)]
    assert list(world.segments.stream_events(S, T).values()) == [expected, expected]
    assert world.segments.transaction_segments() == []


async def test_a_question_may_wait_until_a_set_is_readable(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, merge_s = world.segments.merge_batch, 1.5

    async def merge_slowly(target: str, sources: Sequence[str]) -> list[int]:
        await world.clock.sleep(merge_s)
        return await merge(target, sources)

    async def asked(instance: Instance, wait_ms: int) -> tuple[SetRecordState, float]:
        began_s = world.clock.monotonic_s()
        found = (await world.run(instance.sets.get(Q, D, 0, wait_ms=wait_ms))).decision
        assert isinstance(found, SetRecord)
        return found.state, world.clock.monotonic_s() - began_s

    monkeypatch.setattr(world.segments, "merge_batch", merge_slowly)
    assert (await world.run(one.sets.get(Q, D, 0, wait_ms=500))).decision is None
    await commit(world, one, 0, await members_of(world, one, "m", 2))
    began_s = world.clock.monotonic_s()
    assert await asked(one, 0) == (SetRecordState.COMMITTED, 0)
    state, took_s = await asked(one, 10 * readable_wait_max_ms)
    assert state is SetRecordState.ORDERED and took_s == pytest.approx(readable_wait_max_ms / 1000)
    assert (await asked(await world.instance(), 1_000))[1] == 0, "another controller knows nothing of the end"
    assert (await asked(one, 1_000))[0] is SetRecordState.FINISHED
    assert world.clock.monotonic_s() - began_s == pytest.approx(merge_s, abs=0.1)
    assert await asked(one, 1_000) == (SetRecordState.FINISHED, 0)


async def test_a_set_over_several_streams(world: World, one: Instance) -> None:
    members = await members_of(world, one, "t", 2) + await members_of(world, one, "u", 2, U)
    await register(world, one, 0, members)
    assert (await commit(world, one, 0, members)).verdict is Verdict.COMMITTED
    await finished(world, one, 0)
    assert list(world.segments.stream_events(S, T).values()) == [["t.0", "t.1"]] * 2
    assert list(world.segments.stream_events(S, U).values()) == [["u.0", "u.1"]]


async def test_one_member_that_is_not_open_refuses_the_whole_set(world: World, one: Instance) -> None:
    members = await members_of(world, one, "t", 2) + await members_of(world, one, "u", 1, U)
    lost = members[-1]
    assert await world.run(one.transactions.abort(S, U, uuid.UUID(hex=lost.transaction)))
    taken = await commit(world, one, 0, members)
    assert taken.verdict is Verdict.REFUSED and str(uuid.UUID(hex=lost.transaction)) in taken.detail
    assert [await state_of(world, one, member) for member in members[:2]] == [TransactionState.OPEN] * 2
    # Released: the others can be decided in another way.
    assert await world.run(one.transactions.abort(S, T, uuid.UUID(hex=members[0].transaction)))
    assert (await commit(world, one, 0, members[1:2])).verdict is Verdict.COMMITTED


async def test_empty_batches_are_recorded_too(world: World, one: Instance) -> None:
    assert (await commit(world, one, 0, [])).verdict is Verdict.COMMITTED
    await finished(world, one, 0)
    assert (await commit(world, one, 0, [])).verdict is Verdict.ALREADY_COMMITTED
    assert (await commit(world, one, 0, [], events=1)).verdict is Verdict.REPLAY_DIFFERS
    assert (await commit(world, one, 1, [])).verdict is Verdict.COMMITTED
    assert (await commit(world, one, 0, [])).verdict is Verdict.CHECKPOINT_BEHIND_SINK


async def test_a_replay_of_a_committed_batch(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 2)
    assert (await commit(world, one, 3, members)).verdict is Verdict.COMMITTED
    again = await members_of(world, one, "again", 2)
    answer = await register(world, one, 3, again, "r2")
    assert (answer.verdict, answer.last_batch_id) == (Verdict.BATCH_DECIDED, 3)
    taken = await commit(world, one, 3, again, "r2")
    assert taken.verdict is Verdict.ALREADY_COMMITTED and taken.set is not None
    assert {member.transaction for member in taken.set.members} == {member.transaction for member in members}
    differs = await commit(world, one, 3, again, "r2", events=7)
    assert differs.verdict is Verdict.REPLAY_DIFFERS and "7 events" in differs.detail
    assert (await commit(world, one, 2, again, "r2")).verdict is Verdict.CHECKPOINT_BEHIND_SINK
    await world.clock.pass_time(1)
    assert [await state_of(world, one, member) for member in again] == [TransactionState.ABORTED] * 2


async def test_a_displaced_run_is_fenced(world: World, one: Instance) -> None:
    old = await members_of(world, one, "old", 2)
    new = await members_of(world, one, "new", 2)
    assert (await register(world, one, 0, old, "r1")).verdict is Verdict.REGISTERED
    assert (await register(world, one, 0, new, "r2")).verdict is Verdict.REGISTERED
    assert (await register(world, one, 0, old, "r1")).verdict is Verdict.REGISTERED
    assert (await commit(world, one, 0, new, "r2")).verdict is Verdict.COMMITTED
    assert (await register(world, one, 0, old, "r1")).verdict is Verdict.FENCED
    assert (await commit(world, one, 0, old, "r1")).verdict is Verdict.FENCED
    await finished(world, one, 0)
    await world.clock.pass_time(1)
    assert [await state_of(world, one, member) for member in old] == [TransactionState.ABORTED] * 2
    assert list(world.segments.stream_events(S, T).values()) == [["new.0", "new.1"]] * 2


async def test_tasks_of_a_dead_driver_do_not_stop_the_live_run(world: World, one: Instance) -> None:
    live = await members_of(world, one, "live", 2)
    await commit(world, one, 0, [], "r2")
    await register(world, one, 1, live, "r2")
    late = await members_of(world, one, "late", 2, lease_ms=10_000)
    assert (await register(world, one, 1, late, "r1")).verdict is Verdict.REGISTERED
    # Of either of them the driver may be the live one: both keep their transactions.
    await world.clock.pass_time(undecided_grace_ms / 1000 - 60)
    assert [await state_of(world, one, member) for member in (*live, *late)] == [TransactionState.OPEN] * 4
    assert (await commit(world, one, 1, live, "r2")).verdict is Verdict.COMMITTED
    await finished(world, one, 1)
    await world.clock.pass_time(1)
    assert [await state_of(world, one, member) for member in late] == [TransactionState.ABORTED] * 2
    assert (await commit(world, one, 2, [], "r2")).verdict is Verdict.COMMITTED


async def test_calls_of_any_task_keep_all_transactions_of_the_batch_open(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 2, lease_ms=10_000)
    loose = await world.member(one, S, T, "loose", 0, 10_000)
    await register(world, one, 0, members)
    for _ in range(4):
        await world.clock.pass_time(undecided_grace_ms / 1000 - 60)
        await register(world, one, 0, members[:1])
    assert [await state_of(world, one, member) for member in members] == [TransactionState.OPEN] * 2
    assert await state_of(world, one, loose) is TransactionState.ABORTED
    await world.clock.pass_time(undecided_grace_ms / 1000 + lease_grace_s + 60)
    assert [await state_of(world, one, member) for member in members] == [TransactionState.ABORTED] * 2
    answer = await register(world, one, 0, members)
    assert answer.verdict is Verdict.REFUSED and "not open" in answer.detail


async def test_calls_of_a_task_without_a_transaction_keep_those_of_others_open(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 2, lease_ms=10_000)
    await register(world, one, 0, members)
    for _ in range(4):
        await world.clock.pass_time(undecided_grace_ms / 1000 - 60)
        assert (await register(world, one, 0, [])).verdict is Verdict.REGISTERED
    assert (await commit(world, one, 0, members)).verdict is Verdict.COMMITTED
    await finished(world, one, 0)
    await world.clock.pass_time(1)
    assert not (await world.store.scan(REGISTRATIONS_TABLE, b"", 100)).entries


async def test_a_bound_member_can_be_decided_by_its_set_only(world: World, one: Instance) -> None:
    other = await world.instance()
    members = await members_of(world, one, "a", 2, lease_ms=10_000)
    one.die_at("transaction_set.members_bound")
    with pytest.raises(Crashed):
        await commit(world, one, 0, members)
    await world.run(one.kill())
    identifier = uuid.UUID(hex=members[0].transaction)
    assert not await world.run(other.transactions.commit(S, T, identifier))
    assert not await world.run(other.transactions.abort(S, T, identifier))
    await world.clock.pass_time(10 + lease_grace_s + 5)
    assert await state_of(world, other, members[0]) is TransactionState.OPEN
    # The sweep of the other controller refuses what is pending for too long, and then leases count again.
    await world.clock.pass_time(pending_max_ms / 1000 + 120)
    assert [await state_of(world, other, member) for member in members] == [TransactionState.ABORTED] * 2
    assert (await commit(world, other, 0, members)).verdict is Verdict.REFUSED


async def test_a_member_belongs_to_one_sink_and_batch(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 1)
    await register(world, one, 0, members)
    taken = await world.run(one.sets.commit("another", D, "r1", 0, members, 1, event_bytes))
    assert taken.verdict is Verdict.REFUSED and "another batch or sink" in taken.detail
    assert (await commit(world, one, 1, members)).verdict is Verdict.REFUSED
    assert (await commit(world, one, 0, members)).verdict is Verdict.COMMITTED


async def test_tasks_register_at_the_same_time(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 40)

    async def all_at_once() -> list[RegisterAnswer]:
        calls = (one.sets.register(Q, D, "r1", 0, [member]) for member in members)
        return list(await asyncio.gather(*calls))

    answers = await world.run(all_at_once())
    assert {answer.verdict for answer in answers} == {Verdict.REGISTERED}
    assert (await commit(world, one, 0, members[:1])).verdict is Verdict.COMMITTED
    await finished(world, one, 0)
    await world.clock.pass_time(2)
    states = {await state_of(world, one, member) for member in members[1:]}
    assert states == {TransactionState.ABORTED}


async def test_two_controllers_take_the_same_call(world: World, one: Instance) -> None:
    other = await world.instance()
    members = await members_of(world, one, "a", 3)

    async def both() -> list[CommitAnswer]:
        calls = (one.sets.commit(Q, D, "r1", 0, members, 3, 30), other.sets.commit(Q, D, "r1", 0, members, 3, 30))
        return list(await asyncio.gather(*calls))

    answers = await world.run(both())
    assert {answer.verdict for answer in answers} <= {Verdict.COMMITTED, Verdict.ALREADY_COMMITTED}
    await finished(world, other, 0)
    assert list(world.segments.stream_events(S, T).values()) == [["a.0", "a.1", "a.2"]] * 2


async def test_sinks_are_listed_and_forgotten(world: World, one: Instance) -> None:
    assert (await commit(world, one, 0, [])).verdict is Verdict.COMMITTED
    records, token = await world.run(one.sets.list_sinks())
    assert [(record.query_id, record.last_batch_id) for record in records] == [(Q, 0)] and token == b""
    world.clock.skip((record_kept_ms + 2 * day_ms) / 1000)
    world.clock.agrees = False
    await world.clock.pass_time(60)
    assert await world.run(one.sets.list_sinks()) == (records, b""), "by a clock that is ahead nothing is forgotten"
    world.clock.agrees = True
    await world.clock.pass_time(60)
    assert await world.run(one.sets.list_sinks()) == ([], b"")


async def test_batches_whose_tasks_went_silent_make_room(world: World, one: Instance) -> None:
    members = await members_of(world, one, "a", 2)
    await register(world, one, 4, members)
    world.clock.agrees = False
    await world.clock.pass_time((undecided_grace_ms + pending_max_ms) / 1000 + 120)
    records, _ = await world.run(one.sets.list_sinks())
    (record,) = records
    assert record.open_batches == (4,), "by a clock that is ahead nobody is silent"
    world.clock.agrees = True
    await world.clock.pass_time(sweep_period_s + 1)
    records, _ = await world.run(one.sets.list_sinks())
    (record,) = records
    assert record.open_batches == ()
    assert (await register(world, one, 4, [])).verdict is Verdict.REGISTERED


async def test_a_set_whose_members_were_begun_before_a_scale(world: World, one: Instance) -> None:
    before = await members_of(world, one, "a", 2)
    await register(world, one, 0, before)
    await world.scale_to_one(S, T)
    assert (await commit(world, one, 0, before)).verdict is Verdict.COMMITTED
    after = await members_of(world, one, "b", 2)
    assert (await commit(world, one, 1, after)).verdict is Verdict.COMMITTED
    await finished(world, one, 1)
    events = world.segments.stream_events(S, T)
    assert events["scope/stream/0.#epoch.2"] == ["a.0", "a.1"]
    assert events["scope/stream/2.#epoch.3"] == ["b.0", "b.1"]


@pytest.mark.parametrize(
    ("query", "run", "batch", "members", "events"),
    [
        ("", "r", 0, [], 0),
        ("q" * 501, "r", 0, [], 0),
        ("q", "", 0, [], 0),
        ("q", "r", -1, [], 0),
        ("q", "r", 0, [MemberRecord("stream", "0" * 32)], 0),
        ("q", "r", 0, [MemberRecord("s/t", "xyz")], 0),
        ("q", "r", 0, [MemberRecord("s/t", "0" * 32, -1)], 0),
        ("q", "r", 0, [MemberRecord("s/t", "0" * 32), MemberRecord("s/t", "0" * 32)], 0),
        ("q", "r", 0, [MemberRecord("s/t", "0" * 32, 0, 2, 0)], 1),
    ],
)
async def test_bad_input_is_refused(
    world: World, one: Instance, query: str, run: str, batch: int, members: list[MemberRecord], events: int
) -> None:
    with pytest.raises(InvalidArgument):
        await world.run(one.sets.commit(query, D, run, batch, members, events, 0))


@pytest.mark.parametrize("stored", [b"not a record", b'{"_v":1,"query_id":"damaged"}'])
async def test_a_record_that_cannot_be_read_keeps_no_other_sink_from_being_swept(
    world: World, one: Instance, stored: bytes
) -> None:
    members = await members_of(world, one, "a", 2)
    one.die_at("transaction_set.commit_recorded")
    with pytest.raises(Crashed):
        await commit(world, one, 0, members)
    await world.run(one.kill())
    await world.store.put(SETS_TABLE, "0 comes first", stored, ABSENT)
    other = await world.instance()
    await finished(world, other, 0)
    sinks, _ = await world.run(other.sets.list_sinks())
    assert [sink.query_id for sink in sinks] == [Q]


async def test_sinks_whose_streams_are_away_hold_up_no_others(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep comes to the set that a dead controller committed, though transactions of other sinks cannot be ended."""
    monkeypatch.setattr(set_sweep, "sweep_time_max_s", 0.05)
    for number in range(20):
        member = await world.member(one, S, U, f"away.{number}", 0, 30_000)
        await world.run(one.sets.register(f"a-{number}", D, "r1", 0, [member]))
    world.clock.skip((undecided_grace_ms + pending_max_ms) / 1000 + 1)
    members = await members_of(world, one, "a", 1)
    one.die_at("transaction_set.commit_recorded")
    with pytest.raises(Crashed):
        await commit(world, one, 0, members)
    await world.run(one.kill())
    other = world.add_instance()
    held: list[str] = []
    abort = other.transactions.abort

    async def abort_what_is_there(scope: str, stream: str, identifier: uuid.UUID) -> bool:
        if stream == U:
            held.append(stream)
            await asyncio.Event().wait()
        return await abort(scope, stream, identifier)

    monkeypatch.setattr(other.transactions, "abort", abort_what_is_there)
    await world.run(other.start())
    async with asyncio.timeout(10):
        await other.sets.sweep()
    assert len(held) >= 20
    await finished(world, other, 0)


async def test_an_attempt_that_comes_late_makes_a_set_of_its_own_time(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = await members_of(world, one, "a", 1)
    write = one.sets._steps.write
    lost = 0

    async def lose_the_first_race(key: str, found: FoundSink, record: SinkRecord) -> FoundSink | None:
        nonlocal lost
        if lost == 0:
            lost += 1
            world.clock.skip(pending_max_ms / 1000 + 1)
            return None
        return await write(key, found, record)

    monkeypatch.setattr(one.sets._steps, "write", lose_the_first_race)
    answer = await commit(world, one, 0, members)
    assert lost == 1 and answer.set is not None
    assert world.clock.wall_ms() - answer.set.started_ms < 60_000
