"""Checks two calls about the same thing at the same time, in many interleavings: one wins, and both learn it."""

from __future__ import annotations

import asyncio
import uuid
from random import Random
from typing import Any

import pytest

from controller_service.sets.transaction_set import Verdict
from pravega_common.errors import UnknownOutcome
from pravega_common.model.transactions import TransactionState
from tests.support.gate import Gate
from tests.support.transaction_world import Crashed, CrashSwitch, Instance, World, event_bytes

S, T = "scope", "stream"
Q, D = "query", "scope/stream"
pytestmark = pytest.mark.timeout(120)

seeds = range(40)


class Jitter(CrashSwitch):
    """Every operation takes a random number of turns."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self._random.randrange(12)):
            await asyncio.sleep(0)
        return await super().call(work, *args, **kwargs)


async def world_of(seed: int) -> tuple[World, Instance, Instance]:
    world = World(seed)
    await world.create_stream(S, T)
    return world, await world.instance(Jitter(seed)), await world.instance(Jitter(seed + 1_000))


async def state_of(world: World, one: Instance, identifier: uuid.UUID) -> TransactionState:
    return await world.run(one.transactions.transaction_state(S, T, identifier))


@pytest.mark.parametrize("seed", seeds)
async def test_commit_against_abort(seed: int) -> None:
    world, one, other = await world_of(seed)
    created = await world.begin(one, S, T, "a")
    committed, aborted = await world.run(
        _both(one.transactions.commit(S, T, created.id), other.transactions.abort(S, T, created.id))
    )
    assert committed is not aborted
    await world.clock.pass_time(2)
    expected = TransactionState.COMMITTED if committed else TransactionState.ABORTED
    assert await state_of(world, one, created.id) is expected
    assert list(world.segments.stream_events(S, T).values()) == [["a"] if committed else []] * 2
    await world.close()


@pytest.mark.parametrize("seed", seeds)
async def test_a_set_against_the_abort_of_a_member(seed: int) -> None:
    world, one, other = await world_of(seed)
    members = [await world.member(one, S, T, str(index), index) for index in range(3)]
    victim = uuid.UUID(hex=members[1].transaction)
    answer, aborted = await world.run(
        _both(one.sets.commit(Q, D, "r", 0, members, 3, 3 * event_bytes), other.transactions.abort(S, T, victim))
    )
    assert answer.verdict is (Verdict.REFUSED if aborted else Verdict.COMMITTED)
    await world.clock.pass_time(2)
    assert list(world.segments.stream_events(S, T).values()) == [[] if aborted else ["0", "1", "2"]] * 2
    assert await state_of(world, one, victim) is (TransactionState.ABORTED if aborted else TransactionState.COMMITTED)
    await world.close()


@pytest.mark.parametrize("seed", seeds)
async def test_a_set_against_the_commit_of_a_member(seed: int) -> None:
    world, one, other = await world_of(seed)
    members = [await world.member(one, S, T, str(index), index) for index in range(2)]
    victim = uuid.UUID(hex=members[1].transaction)
    answer, committed = await world.run(
        _both(one.sets.commit(Q, D, "r", 0, members, 2, 2 * event_bytes), other.transactions.commit(S, T, victim))
    )
    # A commit of a member that its set has committed already finds it committing, and says so.
    assert committed if answer.verdict is Verdict.REFUSED else answer.verdict is Verdict.COMMITTED
    await world.clock.pass_time(2)
    refused = answer.verdict is Verdict.REFUSED
    assert list(world.segments.stream_events(S, T).values()) == [["1"] if refused else ["0", "1"]] * 2
    await world.close()


@pytest.mark.parametrize("seed", seeds)
async def test_a_registration_against_the_commit_of_its_batch(seed: int) -> None:
    """One of the two sees the other: a transaction outside the set ends at once, not with its lease."""
    world, one, other = await world_of(seed)
    member = await world.member(one, S, T, "in", 0)
    late = await world.member(one, S, T, "late", 1, lease_ms=600_000)
    assert (await world.run(one.sets.register(Q, D, "r", 0, [member]))).verdict is Verdict.REGISTERED
    answer, registered = await world.run(
        _both(one.sets.commit(Q, D, "r", 0, [member], 1, event_bytes), other.sets.register(Q, D, "r", 0, [late]))
    )
    assert answer.verdict is Verdict.COMMITTED
    assert registered.verdict in (Verdict.REGISTERED, Verdict.BATCH_DECIDED)
    await world.clock.pass_time(3)
    assert await state_of(world, one, uuid.UUID(hex=late.transaction)) is TransactionState.ABORTED
    [record], _ = await world.run(one.sets.list_sinks())
    assert record.open_batches == ()
    assert (await world.run(world.store.scan("transactionSetRegistrations"))).entries == ()
    await world.close()


@pytest.mark.parametrize("seed", seeds)
async def test_two_runs_commit_the_same_batch(seed: int) -> None:
    world, one, other = await world_of(seed)
    old = [await world.member(one, S, T, f"old{index}", index) for index in range(2)]
    new = [await world.member(one, S, T, f"new{index}", index) for index in range(2)]
    assert (await world.run(one.sets.register(Q, D, "r1", 0, old))).verdict is Verdict.REGISTERED
    first, second = await world.run(
        _both(
            one.sets.commit(Q, D, "r1", 0, old, 2, 2 * event_bytes),
            other.sets.commit(Q, D, "r2", 0, new, 2, 2 * event_bytes),
        )
    )
    verdicts = (first.verdict, second.verdict)
    assert verdicts in {
        (Verdict.COMMITTED, Verdict.ALREADY_COMMITTED),
        (Verdict.FENCED, Verdict.COMMITTED),
        # The first one's commit was in, its answer was found out after the second run had taken over.
        (Verdict.FENCED, Verdict.ALREADY_COMMITTED),
    }
    await world.clock.pass_time(2)
    chosen = "old" if second.verdict is Verdict.ALREADY_COMMITTED else "new"
    assert list(world.segments.stream_events(S, T).values()) == [[f"{chosen}0", f"{chosen}1"]] * 2
    await world.close()


async def test_a_lost_answer_at_the_commit_point_is_found_out() -> None:
    world, one, _ = await world_of(0)
    members = [await world.member(one, S, T, "a", 0)]
    put, lost = world.store.put, 0

    async def losing(table: str, key: str, value: bytes, expected: int) -> int:
        nonlocal lost
        version = await put(table, key, value, expected)
        if table == "transactionSets" and b'"state":"committed"' in value and not lost:
            lost += 1
            raise UnknownOutcome("the answer was lost")
        return version

    world.store.put = losing  # type: ignore[method-assign]
    answer = await world.run(one.sets.commit(Q, D, "r", 0, members, 1, event_bytes))
    assert lost == 1 and answer.verdict is Verdict.COMMITTED
    await world.clock.pass_time(2)
    assert list(world.segments.stream_events(S, T).values()) == [["a"]] * 2
    await world.close()


@pytest.mark.parametrize("name", ["transaction_commit.marked", "transaction_abort.marked"])
async def test_a_decision_is_carried_out_without_its_client(name: str) -> None:
    """The controller dies between the decision and the request for its work, and the client never comes back."""
    world, one, other = await world_of(0)
    await world.run(other.kill())
    created = await world.begin(one, S, T, "a")
    one.die_at(name)
    call = one.transactions.commit if "commit" in name else one.transactions.abort
    with pytest.raises(Crashed):
        await world.run(call(S, T, created.id))
    await world.run(one.kill())
    second = await world.instance()
    await world.clock.pass_time(2)
    expected = TransactionState.COMMITTED if "commit" in name else TransactionState.ABORTED
    assert await state_of(world, second, created.id) is expected
    await world.close()


async def _both(first: Any, second: Any) -> tuple[Any, Any]:
    one, two = await asyncio.gather(first, second)
    return one, two


async def test_a_round_begins_with_the_epoch_that_the_round_before_moved_to() -> None:
    """Another run has the stream's state meanwhile, so the state does not tell that the epoch moved."""
    world = World(0)
    await world.create_stream(S, T)
    first, second = await world.instance(), await world.instance()
    begun = [await world.begin(first, S, T, label) for label in ("one", "two")]
    await world.scale_to_one(S, T)
    merge, order, looked = Gate(world), Gate(world), Gate(world)
    merge.at(first.segments, "merge_batches")
    assert await world.run(first.transactions.commit(S, T, begun[0].id))
    await merge.come()
    looked.at(second.transactions.records, "commit_state")
    assert await world.run(second.transactions.commit(S, T, begun[1].id))
    await looked.come()
    await world.clock.pass_time(1)
    order.at(first.transactions.records, "with_next_blocks")
    merge.opened.set()
    await order.come()
    looked.opened.set()
    await world.clock.pass_time(5)
    order.opened.set()
    await world.clock.pass_time(30)
    assert [one.transactions.blocked for one in world.instances] == [{}, {}]
    assert sorted(await world.readable(S, T)) == ["one"] * 2 + ["two"] * 2
    await world.close()
