"""A controller dies at every call to a store, and at every failpoint; another one goes on.

Whatever the moment: a promised commit is carried out, exactly once; a set is all or nothing; what is in no set ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

# Imported for their failpoints, too.
from controller_service.sets import transaction_set_service
from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, Verdict
from controller_service.transactions import abort_transactions, commit_transactions
from pravega_common.errors import PravegaError
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime import failpoints
from tests.support.transaction_world import Crashed, Instance, World, event_bytes

R = TypeVar("R")

S, T, U = "scope", "stream", "other"
Q, D = "query", "scope/*"
pytestmark = pytest.mark.timeout(300)

settle_s = 5.0
"""Virtual seconds in which everything that a controller has begun comes to its end."""
runs_max = 400

assert transaction_set_service and abort_transactions and commit_transactions
SET_FAILPOINTS = sorted(name for name in failpoints.KNOWN if name.startswith("transaction_set."))
COMMIT_FAILPOINTS = sorted(name for name in failpoints.KNOWN if name.startswith("transaction_commit."))
ABORT_FAILPOINTS = sorted(name for name in failpoints.KNOWN if name.startswith("transaction_abort."))
ROLLING_ONLY = {
    f"transaction_commit.{step}"
    for step in ("duplicates_created", "duplicates_sealed", "epochs_recorded", "active_sealed", "epoch_moved")
}
TWO_WORKERS_ONLY = {"transaction_commit.made_rolling"}


async def survived(world: World, call: Awaitable[R]) -> R | None:
    """The result of a call, None if its controller died."""
    try:
        return await world.run(call, 30)
    except Crashed:
        return None


async def insist(world: World, call: Callable[[], Awaitable[R]]) -> R:
    """Call again until there is an answer, as clients do."""
    for _ in range(20):
        try:
            return await world.run(call(), 60)
        except PravegaError:
            await world.clock.pass_time(0.1)
    raise TimeoutError("no answer in 20 tries")


def dying_at(call: int, after_effect: bool) -> Callable[[Instance], None]:
    """Makes an instance die at its n-th operation from now."""

    def arm(instance: Instance) -> None:
        instance.switch.crash_after(call, after_effect)

    return arm


async def expect_events(world: World, stream: str, expected: Sequence[str]) -> None:
    """Every segment that was ever active holds a part of ``expected``; together, epoch after epoch, all of it."""
    context = await world.streams.open(S, stream)
    current = await context.current_epoch()
    numbers = {segment.number for segment in (await context.epoch(0)).segments}
    events = world.segments.stream_events(S, stream)
    for number in numbers:
        held = [
            event
            for epoch in range(current.epoch + 1)
            for event in events.get(f"{S}/{stream}/{number}.#epoch.{epoch}", [])
        ]
        assert held == list(expected), (stream, number)


# ---- transactions of one stream --------------------------------------------------------------------------------------


async def commit_through_a_crash(rolling: bool, prepare: Callable[[Instance], None]) -> bool:
    """Commit three transactions and abort one while the controller dies somewhere; whether it did die."""
    world = World()
    await world.create_stream(S, T)
    first = await world.instance()
    labels = ("a", "b", "c")
    committed = [await world.begin(first, S, T, label) for label in labels]
    aborted = await world.begin(first, S, T, "aborted")
    if rolling:
        await world.scale_to_one(S, T)
    prepare(first)
    for created in committed:
        await survived(world, first.transactions.commit(S, T, created.id))
    await survived(world, first.transactions.abort(S, T, aborted.id))
    await world.clock.pass_time(settle_s)
    died = first.switch.crashed
    await world.run(first.kill())

    second = await world.instance()
    for created in committed:
        assert await insist(world, lambda created=created: second.transactions.commit(S, T, created.id))  # type: ignore[misc]
    assert await insist(world, lambda: second.transactions.abort(S, T, aborted.id))
    await world.clock.pass_time(settle_s)
    for created in committed:
        state = await world.run(second.transactions.transaction_state(S, T, created.id))
        assert state is TransactionState.COMMITTED
    assert await world.run(second.transactions.transaction_state(S, T, aborted.id)) is TransactionState.ABORTED
    await expect_events(world, T, labels)
    assert world.segments.transaction_segments() == []
    assert (await world.run(world.end_all(second, S, T))) is True
    context = await world.streams.open(S, T)
    assert (await context.state()).value == "active"
    await world.close()
    return died


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("rolling", [False, True])
async def test_commits_through_a_crash_at_every_call(rolling: bool, after_effect: bool) -> None:
    for call in range(1, runs_max):
        if not await commit_through_a_crash(rolling, dying_at(call, after_effect)):
            assert call > 25
            return
    raise AssertionError("the scenario never came to its end")


@pytest.mark.parametrize("name", [*COMMIT_FAILPOINTS, *ABORT_FAILPOINTS])
async def test_commits_through_a_crash_at_every_failpoint(name: str) -> None:
    if name in TWO_WORKERS_ONLY:
        assert not await commit_through_a_crash(True, lambda one: one.die_at(name))
        return
    assert await commit_through_a_crash(name in ROLLING_ONLY, lambda one: one.die_at(name))


# ---- sets ------------------------------------------------------------------------------------------------------------


async def set_of(world: World, instance: Instance, label: str) -> list[MemberRecord]:
    """Two members in a stream of two segments, one in another stream."""
    members = [await world.member(instance, S, T, f"{label}.{index}", index) for index in (0, 1)]
    return [*members, await world.member(instance, S, U, f"{label}.2", 2)]


async def commit_transaction_set(instance: Instance, run: str, batch: int, members: Sequence[MemberRecord]) -> Verdict:
    count = len(members)
    return (await instance.sets.commit(Q, D, run, batch, members, count, count * event_bytes)).verdict


async def sets_through_a_crash(rolling: bool, restarted: bool, prepare: Callable[[Instance], None]) -> bool:
    """Commit a batch while the controller dies somewhere; then the same driver repeats its call, or a restarted one
    replays the batch with new transactions. Then one more batch. Whether the controller did die."""
    world = World()
    await world.create_stream(S, T)
    await world.create_stream(S, U, 1)
    first = await world.instance()
    members = await set_of(world, first, "x")
    orphan = await world.member(first, S, T, "orphan", 1)
    if rolling:
        await world.scale_to_one(S, T)
    prepare(first)
    await survived(world, first.sets.register(Q, D, "r1", 0, [*members, orphan]))
    answered = await survived(world, commit_transaction_set(first, "r1", 0, members))
    assert answered in (None, Verdict.COMMITTED)
    await world.clock.pass_time(settle_s)
    died = first.switch.crashed
    await world.run(first.kill())

    second = await world.instance()
    run, chosen, again = "r1", "x", members
    if restarted:
        run, again = "r2", await set_of(world, second, "y")
        await insist(world, lambda: second.sets.register(Q, D, run, 0, again))
    verdict = await insist(world, lambda: commit_transaction_set(second, run, 0, again))
    if answered is Verdict.COMMITTED:
        assert verdict is Verdict.ALREADY_COMMITTED
    assert verdict in (Verdict.COMMITTED, Verdict.ALREADY_COMMITTED)
    if restarted and verdict is Verdict.COMMITTED:
        chosen = "y"
    following = await set_of(world, second, "next")
    assert await insist(world, lambda: commit_transaction_set(second, run, 1, following)) is Verdict.COMMITTED
    await world.clock.pass_time(settle_s + 60)

    decided = (await world.run(second.sets.get(Q, D, 1))).decision
    assert isinstance(decided, SetRecord) and decided.state is SetRecordState.FINISHED
    # What nobody registered after the crash, since the first driver is gone, ends with its lease.
    await world.clock.pass_time(120)
    await expect_events(world, U, [f"{chosen}.2", "next.2"])
    context = await world.streams.open(S, T)
    if not rolling:
        await expect_events(world, T, [f"{chosen}.0", f"{chosen}.1", "next.0", "next.1"])
    else:
        held = [event for events in world.segments.stream_events(S, T).values() for event in events]
        expected = {f"{chosen}.0": 2, f"{chosen}.1": 2, "next.0": 1, "next.1": 1}
        if chosen == "y":
            expected = dict.fromkeys(expected, 1)
        assert {event: held.count(event) for event in held} == expected
    assert (await context.state()).value == "active"
    assert world.segments.transaction_segments() == []
    state = await world.run(second.transactions.transaction_state(S, T, uuid.UUID(hex=orphan.transaction)))
    assert state is TransactionState.ABORTED
    await world.close()
    return died


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_sets_through_a_crash_at_every_call(restarted: bool, after_effect: bool, all_cases: bool) -> None:
    """Of each kind every other call, each call by some kind; with ``--long`` all."""
    for call in range(1, runs_max) if all_cases else range(1 + restarted, runs_max, 2):
        if not await sets_through_a_crash(False, restarted, dying_at(call, after_effect)):
            assert call > 40
            return
    raise AssertionError("the scenario never came to its end")


@pytest.mark.parametrize("name", [*SET_FAILPOINTS, *COMMIT_FAILPOINTS])
@pytest.mark.parametrize("restarted", [False, True])
async def test_sets_through_a_crash_at_every_failpoint(name: str, restarted: bool) -> None:
    rolling = name in ROLLING_ONLY
    died = await sets_through_a_crash(rolling, restarted, lambda one: one.die_at(name))
    # The others lie on ways that this batch does not go: no refusal, no commit of a single transaction.
    assert died or name in TWO_WORKERS_ONLY | {"transaction_set.refusal_recorded", "transaction_commit.marked"}


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_refused_set_through_a_crash_at_every_call(after_effect: bool) -> None:
    """One member is not open: whenever the controller dies, nothing of the set is ever readable."""
    for call in range(1, runs_max):
        world = World()
        await world.create_stream(S, T)
        await world.create_stream(S, U, 1)
        first = await world.instance()
        members = await set_of(world, first, "x")
        lost = uuid.UUID(hex=members[-1].transaction)
        assert await world.run(first.transactions.abort(S, U, lost))
        await world.clock.pass_time(settle_s)
        dying_at(call, after_effect)(first)
        answered = await survived(world, commit_transaction_set(first, "r1", 0, members))
        assert answered in (None, Verdict.REFUSED)
        died = first.switch.crashed
        await world.run(first.kill())
        second = await world.instance()
        assert await insist(world, lambda: commit_transaction_set(second, "r1", 0, members)) is Verdict.REFUSED  # noqa: B023
        # Nothing holds the others: they can be committed in another set.
        assert await insist(world, lambda: commit_transaction_set(second, "r1", 0, members[:2])) is Verdict.COMMITTED  # noqa: B023
        await world.clock.pass_time(settle_s)
        await expect_events(world, T, ["x.0", "x.1"])
        await expect_events(world, U, [])
        await world.close()
        if not died:
            assert call > 5
            return
