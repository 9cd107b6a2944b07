"""Checks sets that lose a member between their commit and the commit orders of their streams: the sink goes on by
itself if nothing promised is lost, and otherwise waits for an operator, who sees the reason and has a command."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence

import pytest

from controller_service.repair.commit_repair import CommitRepair
from controller_service.sets import set_finisher, transaction_set_service
from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, Verdict
from controller_service.transactions import commit_queue, completed_store, transaction_store
from controller_service.transactions.records import transaction_segments
from controller_service.transactions.transaction_store import Found
from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.commits import ObstacleKind
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import TransactionState
from tests.support.transaction_world import Crashed, CrashSwitch, Instance, World, event_bytes

S, T, U = "scope", "stream", "other"
Q, D = "query", "scope/stream"
pytestmark = pytest.mark.timeout(60)


async def commit(world: World, instance: Instance, batch: int, members: list[MemberRecord]) -> Verdict:
    return (
        await world.run(instance.sets.commit(Q, D, "run", batch, members, len(members), len(members) * event_bytes))
    ).verdict


async def set_state(world: World, instance: Instance, batch: int) -> SetRecordState:
    found = (await world.run(instance.sets.get(Q, D, batch))).decision
    assert isinstance(found, SetRecord)
    return found.state


async def state_of(world: World, instance: Instance, member: MemberRecord) -> TransactionState:
    scope, stream = member.stream.split("/")
    return await world.run(instance.transactions.transaction_state(scope, stream, uuid.UUID(hex=member.transaction)))


async def settle(world: World) -> None:
    await world.clock.pass_time(40.0)


async def one_throttled(world: World, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> list[MemberRecord]:
    """A set of two streams is decided; the order of the second takes no more, since it stands still."""
    created = await world.begin(instance, S, U, "gone")
    await world.segments.delete_segments(transaction_segments(S, U, created.id, [0]))
    assert await world.run(instance.transactions.commit(S, U, created.id))
    monkeypatch.setattr(commit_queue, "commit_queue_max", 1)
    members = [await world.member(instance, S, T, "t", 0), await world.member(instance, S, U, "u", 1)]
    assert await commit(world, instance, 0, members) is Verdict.COMMITTED
    await settle(world)
    assert await set_state(world, instance, 0) is SetRecordState.COMMITTED
    assert await state_of(world, instance, members[0]) is TransactionState.COMMITTED
    assert await state_of(world, instance, members[1]) is TransactionState.OPEN
    return members


async def delete(world: World, stream: str) -> None:
    """As the workflow does, which waits until no transaction is left."""
    entry = await world.streams.entry(S, stream)
    assert entry is not None
    await world.streams.remove_stream(S, stream, entry.stream_id)


async def goes_on(world: World, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stream takes transactions again: the set ends, and so does the sink's next."""
    monkeypatch.undo()
    await settle(world)
    assert await set_state(world, instance, 0) is not SetRecordState.COMMITTED
    [waiting] = (await world.run(instance.transactions.records.commit_state(S, U))).queue.waiting[1:]
    assert waiting
    another = [await world.member(instance, S, U, "next", 0)]
    assert await commit(world, instance, 1, another) is Verdict.COMMITTED


async def test_ends_are_forgotten_while_a_stream_of_the_set_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.instance()
    monkeypatch.setattr(completed_store, "completed_batch_ms", 60_000)
    members = await one_throttled(world, one, monkeypatch)
    for day in range(3):
        await world.clock.pass_time(61)
        created = await world.begin(one, S, T, f"day {day}")
        assert await world.run(one.transactions.commit(S, T, created.id))
        await world.clock.pass_time(1)
    assert await state_of(world, one, members[0]) is TransactionState.UNKNOWN
    await goes_on(world, one, monkeypatch)


async def test_a_stream_of_the_set_is_deleted_while_another_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.instance()
    await one_throttled(world, one, monkeypatch)
    await delete(world, T)
    await settle(world)
    await goes_on(world, one, monkeypatch)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_stream_is_deleted_between_its_commit_and_the_note_of_it(world: World, is_made_again: bool) -> None:
    one = await world.instance()
    one.die_at(set_finisher.MEMBERS_ORDERED)
    members = [await world.member(one, S, U, "u", 0)]
    assert await commit(world, one, 0, members) is Verdict.COMMITTED
    await world.clock.pass_time(1.0)
    assert one.switch.crashed
    await world.run(one.kill())
    two = world.add_instance()
    await world.run(two.queue.start())
    await world.run(two.transactions.start())
    await settle(world)
    assert await state_of(world, two, members[0]) is TransactionState.COMMITTED
    await delete(world, U)
    if is_made_again:
        await world.run(two.create.create(S, U, StreamConfiguration(ScalingPolicy.fixed(1))))
    assert await world.run(two.sets.lost_members()) == []
    await world.run(two.sets.start())
    await settle(world)
    assert await set_state(world, two, 0) is SetRecordState.FINISHED
    assert await commit(world, two, 1, [await world.member(two, S, T, "next", 0)]) is Verdict.COMMITTED


# ---- what needs an operator ------------------------------------------------------------------------------------------


def repair_of(instance: Instance) -> CommitRepair:
    transactions = instance.transactions
    return CommitRepair(
        transactions.records, transactions.index, instance.segments, transactions.scheduler, instance.sets
    )


async def decided(world: World) -> tuple[uuid.UUID, MemberRecord]:
    """A set of two members is committed and its controller dies; the first member is to be lost, the second not."""
    one = await world.instance()
    one.die_at(transaction_set_service.COMMIT_RECORDED)
    members = [await world.member(one, S, T, label, number) for number, label in enumerate(("gone", "kept"))]
    with pytest.raises(Crashed):
        await commit(world, one, 0, members)
    await world.run(one.kill())
    return uuid.UUID(hex=members[0].transaction), members[1]


async def damage(world: World, gone: uuid.UUID, how: str) -> None:
    """To the controller's records, as a restored or repaired table could leave them."""
    store = transaction_store.TransactionStore(world.streams)
    found = await store.get(S, T, gone)
    assert found is not None
    if how == "let go":
        await store.put_many(S, T, [(gone, dataclasses.replace(found.record, bound_to=None), found.version)])
        return
    if how == "aborted":
        await store.start()
        await store.complete(S, T, [gone], TransactionState.ABORTED)
    await store.remove(S, T, [gone])


async def repaired(world: World, instance: Instance, gone: uuid.UUID, kept: MemberRecord) -> None:
    await settle(world)
    assert await set_state(world, instance, 0) is SetRecordState.FINISHED
    assert (await world.run(repair_of(instance).look(S, T))).obstacles == ()
    assert await world.run(repair_of(instance).blocked_streams()) == []
    assert await world.run(instance.transactions.transaction_state(S, T, gone)) is TransactionState.ABORTED
    assert await state_of(world, instance, kept) is TransactionState.COMMITTED
    assert list(world.segments.stream_events(S, T).values()) == [["kept"], ["kept"]]
    assert not [name for name in world.segments.transaction_segments() if gone.hex in name]
    assert await commit(world, instance, 1, [await world.member(instance, S, T, "next", 0)]) is Verdict.COMMITTED


async def test_a_segment_that_is_lost_before_the_order_is_found_in_it(world: World) -> None:
    gone, kept = await decided(world)
    await world.segments.delete_segments(transaction_segments(S, T, gone, [1]))
    two = await world.instance()
    await settle(world)
    assert await commit(world, two, 1, [await world.member(two, S, T, "next", 0)]) is Verdict.COMMITTED
    [obstacle] = (await world.run(repair_of(two).look(S, T))).obstacles
    assert (obstacle.kind, obstacle.transaction) == (ObstacleKind.LOST_TRANSACTION, gone)
    await world.run(repair_of(two).give_up(S, T, gone))
    await settle(world)
    assert await state_of(world, two, kept) is TransactionState.COMMITTED
    assert list(world.segments.stream_events(S, T).values()) == [["kept", "next"], ["kept", "next"]]


@pytest.mark.parametrize("how", ["gone", "let go", "aborted"])
async def test_a_record_that_is_lost_before_the_order_can_be_given_up(world: World, how: str) -> None:
    gone, kept = await decided(world)
    await damage(world, gone, how)
    two = await world.instance()
    await settle(world)
    with pytest.raises(DataCorruption, match=f"{gone} of {S}/{T} is .*, but its set 1 of sink .* is committed"):
        await commit(world, two, 1, [await world.member(two, S, T, "never", 0)])
    repair = repair_of(two)
    [obstacle] = (await world.run(repair.look(S, T))).obstacles
    assert (obstacle.kind, obstacle.transaction) == (ObstacleKind.LOST_TRANSACTION, gone)
    assert await world.run(repair.blocked_streams()) == [(S, T, (obstacle,))]
    with pytest.raises(InvalidArgument):
        await world.run(repair.give_up(S, T, uuid.UUID(hex=kept.transaction)))
    await world.run(repair.give_up(S, T, gone))
    await world.run(repair.give_up(S, T, gone))
    await repaired(world, two, gone, kept)


async def test_a_look_at_a_stream_reads_no_transactions_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, _ = await decided(world)
    await damage(world, gone, "gone")
    two = await world.instance()
    await settle(world)
    asked: list[str] = []
    get_many = two.transactions.records.get_many

    async def noting(scope: str, stream: str, ids: Sequence[uuid.UUID]) -> list[Found | None]:
        asked.append(stream)
        return await get_many(scope, stream, ids)

    monkeypatch.setattr(two.transactions.records, "get_many", noting)
    assert (await world.run(repair_of(two).look(S, U))).obstacles == ()
    assert T not in asked
    assert (await world.run(repair_of(two).look(S, T))).obstacles
    assert T in asked


@pytest.mark.parametrize("crash_at", range(1, 14))
@pytest.mark.parametrize("after_effect", [False, True])
async def test_giving_up_a_lost_record_survives_a_crash_at_every_call(
    world: World, crash_at: int, after_effect: bool
) -> None:
    gone, kept = await decided(world)
    await damage(world, gone, "gone")
    two = await world.instance(CrashSwitch())
    await settle(world)
    two.switch.crash_after(crash_at, after_effect)
    try:
        await world.run(repair_of(two).give_up(S, T, gone))
    except Crashed:
        pass
    await world.run(two.kill())
    three = await world.instance()
    await world.run(repair_of(three).give_up(S, T, gone))
    await world.clock.pass_time(200.0)
    await repaired(world, three, gone, kept)
