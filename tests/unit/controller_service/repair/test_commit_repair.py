"""Data lost under a commit: the stream stands still, says why, and an operator's command gets it going again."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid

import pytest

from controller_service.repair.commit_repair import CommitRepair
from controller_service.sets.transaction_set import SetRecordState, Verdict
from controller_service.transactions import commit_transactions
from controller_service.transactions.commit_queue import CommitQueue
from controller_service.transactions.records import transaction_segments
from pravega_common.errors import InvalidArgument
from pravega_common.model.commits import ObstacleKind
from pravega_common.model.transactions import TransactionState
from pravega_common.names import segment_id, segment_name
from tests.support.transaction_world import CrashSwitch, Instance, World

SCOPE, STREAM = "scope", "stream"


def repair_of(instance: Instance) -> CommitRepair:
    transactions = instance.transactions
    return CommitRepair(
        transactions.records, transactions.index, instance.segments, transactions.scheduler, instance.sets
    )


async def committing(world: World, instance: Instance, label: str) -> uuid.UUID:
    identifier = (await world.begin(instance, SCOPE, STREAM, label)).id
    assert await world.run(instance.transactions.commit(SCOPE, STREAM, identifier))
    return identifier


async def lost(world: World, instance: Instance, label: str) -> uuid.UUID:
    """A committing transaction of which the second segment is gone before anything was merged."""
    created = await world.begin(instance, SCOPE, STREAM, label)
    await world.segments.delete_segments(transaction_segments(SCOPE, STREAM, created.id, [1]))
    assert await world.run(instance.transactions.commit(SCOPE, STREAM, created.id))
    return created.id


async def state_of(world: World, instance: Instance, identifier: uuid.UUID) -> TransactionState:
    return await world.run(instance.transactions.transaction_state(SCOPE, STREAM, identifier))


async def obstacles(world: World, instance: Instance) -> list[tuple[ObstacleKind, uuid.UUID | None]]:
    found = (await world.run(repair_of(instance).look(SCOPE, STREAM))).obstacles
    return [(item.kind, item.transaction) for item in found]


async def settle(world: World) -> None:
    await world.clock.pass_time(20.0)


def events(world: World) -> list[list[str]]:
    return list(world.segments.stream_events(SCOPE, STREAM).values())


async def test_a_stream_that_is_well_has_no_obstacles(world: World) -> None:
    instance = await world.instance()
    assert await obstacles(world, instance) == []
    await committing(world, instance, "a")
    assert await obstacles(world, instance) == []
    await settle(world)
    assert await world.run(repair_of(instance).blocked_streams()) == []
    assert instance.transactions.blocked == {}


async def test_a_lost_transaction_stops_the_stream_and_says_so(world: World) -> None:
    instance = await world.instance()
    gone = await lost(world, instance, "gone")
    await settle(world)
    behind = await committing(world, instance, "behind")
    await settle(world)
    assert await state_of(world, instance, behind) is TransactionState.COMMITTING
    assert await obstacles(world, instance) == [(ObstacleKind.LOST_TRANSACTION, gone)]
    [(scope, stream, [obstacle])] = await world.run(repair_of(instance).blocked_streams())
    assert (scope, stream) == (SCOPE, STREAM)
    assert f"{gone} lost 1 of its 2 segments" in obstacle.detail
    assert list(instance.transactions.blocked) == [f"{SCOPE}/{STREAM}"]
    assert commit_transactions.BLOCKED_STREAMS._value.get() == 1


async def test_giving_it_up_lets_the_others_through(world: World) -> None:
    instance = await world.instance()
    gone, behind = await lost(world, instance, "gone"), await committing(world, instance, "behind")
    await settle(world)
    repair = repair_of(instance)
    await world.run(repair.give_up(SCOPE, STREAM, gone))
    await world.run(repair.give_up(SCOPE, STREAM, gone))
    await settle(world)
    assert await state_of(world, instance, gone) is TransactionState.ABORTED
    assert await state_of(world, instance, behind) is TransactionState.COMMITTED
    assert events(world) == [["behind"], ["behind"]]
    assert world.segments.transaction_segments() == []
    assert instance.transactions.blocked == {}
    await world.run(repair.give_up(SCOPE, STREAM, gone))


async def test_nothing_else_can_be_given_up(world: World) -> None:
    instance = await world.instance()
    repair = repair_of(instance)
    gone, healthy = await lost(world, instance, "gone"), await committing(world, instance, "healthy")
    open_one = (await world.begin(instance, SCOPE, STREAM, "open")).id
    await settle(world)
    for identifier in (healthy, open_one, uuid.uuid4()):
        with pytest.raises(InvalidArgument, match=str(identifier)):
            await world.run(repair.give_up(SCOPE, STREAM, identifier))
    with pytest.raises(InvalidArgument, match="nothing to accept"):
        await world.run(repair.accept_loss(SCOPE, STREAM))
    await world.run(repair.give_up(SCOPE, STREAM, gone))
    await settle(world)
    assert await state_of(world, instance, healthy) is TransactionState.COMMITTED
    with pytest.raises(InvalidArgument, match="does not wait"):
        await world.run(repair.give_up(SCOPE, STREAM, healthy))


@pytest.mark.parametrize("rolling", [False, True])
async def test_a_round_that_lost_bytes_ends_without_them_once_that_is_accepted(world: World, rolling: bool) -> None:
    first = await world.instance()
    half, whole = [await world.begin(first, SCOPE, STREAM, label) for label in ("half", "whole")]
    if rolling:
        await world.scale_to_one(SCOPE, STREAM)
    first.die_at(commit_transactions.ROUND_RECORDED)

    async def commit_both() -> None:
        await asyncio.gather(*(first.transactions.commit(SCOPE, STREAM, item.id) for item in (half, whole)))

    await world.run(commit_both())
    await world.clock.pass_time(1.0)
    await world.run(first.kill())
    await world.segments.delete_segments(transaction_segments(SCOPE, STREAM, half.id, [0]))
    second = await world.instance()
    await settle(world)
    recorded = (await world.run(repair_of(second).look(SCOPE, STREAM))).state.committing
    assert half.id in recorded.ids, "the round was not recorded before the loss"
    assert await obstacles(world, second) == [(ObstacleKind.SHORT_MERGE, None)]
    with pytest.raises(InvalidArgument, match="being merged"):
        await world.run(repair_of(second).give_up(SCOPE, STREAM, half.id))
    await world.run(repair_of(second).accept_loss(SCOPE, STREAM))
    await world.run(repair_of(second).accept_loss(SCOPE, STREAM))
    await settle(world)
    for item in (half, whole):
        assert await state_of(world, second, item.id) is TransactionState.COMMITTED
    readable = sorted(event for segment in events(world) for event in segment)
    assert readable == ["half", "whole", "whole"]
    assert await obstacles(world, second) == []
    assert second.transactions.blocked == {}


async def test_an_entry_without_a_transaction_can_be_taken_out(world: World) -> None:
    instance = await world.instance()
    records = instance.transactions.records
    stray, aborting = uuid.UUID(int=7), (await world.begin(instance, SCOPE, STREAM, "aborting")).id
    state = await records.commit_state(SCOPE, STREAM)
    found = await records.get(SCOPE, STREAM, aborting)
    assert found is not None
    marked = dataclasses.replace(found.record, state=TransactionState.ABORTING)
    await records.write_order(
        SCOPE,
        STREAM,
        [(aborting, marked, found.version)],
        CommitQueue((stray.hex, aborting.hex), 2),
        state.queue_version,
    )
    behind = await committing(world, instance, "behind")
    await settle(world)
    kinds = await obstacles(world, instance)
    assert kinds[0] == (ObstacleKind.STRAY_ENTRY, stray)
    for _, identifier in kinds:
        assert identifier is not None
        await world.run(repair_of(instance).give_up(SCOPE, STREAM, identifier))
    await settle(world)
    assert await state_of(world, instance, behind) is TransactionState.COMMITTED
    assert events(world) == [["behind"], ["behind"]]


async def test_a_stream_segment_that_is_gone_is_named_and_no_command_pretends_to_help(world: World) -> None:
    instance = await world.instance()
    identifier = (await world.begin(instance, SCOPE, STREAM, "a")).id
    await world.segments.delete_segments([segment_name(SCOPE, STREAM, segment_id(0, 0))])
    assert await world.run(instance.transactions.commit(SCOPE, STREAM, identifier))
    await settle(world)
    assert await obstacles(world, instance) == [(ObstacleKind.LOST_SEGMENT, None)]
    with pytest.raises(InvalidArgument):
        await world.run(repair_of(instance).give_up(SCOPE, STREAM, identifier))
    with pytest.raises(InvalidArgument):
        await world.run(repair_of(instance).accept_loss(SCOPE, STREAM))


async def test_a_set_with_a_member_given_up_is_finished_and_its_sink_goes_on(world: World) -> None:
    instance = await world.instance()
    sets = instance.sets
    members = [await world.member(instance, SCOPE, STREAM, f"m{number}", number) for number in range(2)]
    gone = uuid.UUID(hex=members[0].transaction)
    await world.segments.delete_segments(transaction_segments(SCOPE, STREAM, gone, [0]))
    destination = f"{SCOPE}/{STREAM}"
    taken = await world.run(sets.commit("q", destination, "run", 0, members, 2, 20))
    assert taken.verdict is Verdict.COMMITTED
    await settle(world)
    await world.run(repair_of(instance).give_up(SCOPE, STREAM, gone))
    await settle(world)
    assert events(world) == [["m1"], ["m1"]]
    another = [await world.member(instance, SCOPE, STREAM, "next", 0)]
    taken = await world.run(sets.commit("q", destination, "run", 1, another, 1, 10))
    assert taken.verdict is Verdict.COMMITTED
    await settle(world)
    decided = (await world.run(sets.get("q", destination, 1))).decision
    assert decided is not None and getattr(decided, "state", None) is SetRecordState.FINISHED
    assert events(world) == [["m1", "next"], ["m1", "next"]]


@pytest.mark.parametrize("crash_at", range(1, 14))
@pytest.mark.parametrize("after_effect", [False, True])
async def test_giving_up_survives_a_crash_at_every_call(world: World, crash_at: int, after_effect: bool) -> None:
    first = await world.instance()
    gone, behind = await lost(world, first, "gone"), await committing(world, first, "behind")
    await settle(world)
    await world.run(first.kill())
    second = await world.instance(CrashSwitch())
    await settle(world)
    second.switch.crash_after(crash_at, after_effect)
    try:
        await world.run(repair_of(second).give_up(SCOPE, STREAM, gone))
    except BaseException as error:
        assert type(error).__name__ == "Crashed"
    await world.run(second.kill())
    third = await world.instance()
    await world.run(repair_of(third).give_up(SCOPE, STREAM, gone))
    await world.clock.pass_time(200.0)
    assert await state_of(world, third, gone) is TransactionState.ABORTED
    assert await state_of(world, third, behind) is TransactionState.COMMITTED
    assert events(world) == [["behind"], ["behind"]]
    assert world.segments.transaction_segments() == []


async def test_bytes_that_others_wrote_do_not_stand_for_those_of_a_lost_source(world: World) -> None:
    first = await world.instance()
    lost = await world.begin(first, SCOPE, STREAM, "lost")
    first.die_at(commit_transactions.ROUND_RECORDED)
    await world.run(first.transactions.commit(SCOPE, STREAM, lost.id))
    await world.clock.pass_time(1.0)
    await world.run(first.kill())
    await world.segments.delete_segments(transaction_segments(SCOPE, STREAM, lost.id, [0]))
    for number in range(2):
        world.segments.append(f"{SCOPE}/{STREAM}/{number}.#epoch.0", 1_000)
    second = await world.instance()
    await settle(world)
    assert await state_of(world, second, lost.id) is TransactionState.COMMITTING
    assert await obstacles(world, second) == [(ObstacleKind.SHORT_MERGE, None)]
    await world.run(repair_of(second).accept_loss(SCOPE, STREAM))
    await settle(world)
    assert await state_of(world, second, lost.id) is TransactionState.COMMITTED
