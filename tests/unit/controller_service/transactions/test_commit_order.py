"""Commits of one stream at the same time: they enter the commit order together, and each gets its own answer."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from controller_service.store.serializer import decode
from controller_service.store.versioned_store import Put
from controller_service.transactions import commit_order, commit_queue, commit_transactions
from controller_service.transactions.order_records import COMMITS_KEY, COMMITTING_KEY, is_order_key
from controller_service.transactions.records import CommittingRecord
from pravega_common.errors import Throttled, UnknownOutcome, VersionConflict
from pravega_common.model.transactions import TransactionState
from tests.support.transaction_world import Instance, World


class Writes:
    """The writes to the commit order that the store takes. ``lose_answer``: of the next one; ``hold``: before each."""

    def __init__(self, world: World) -> None:
        self.sizes: list[int] = []
        self.conflicts = 0
        self.rounds = 0
        self.lose_answer = False
        self.hold: asyncio.Event | None = None
        self.held = asyncio.Event()
        self._inner = world.store.put_many
        world.store.put_many = self._put_many  # type: ignore[method-assign]

    async def _put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        self.rounds += sum(
            put.key == COMMITTING_KEY and not decode(CommittingRecord, put.value).is_idle for put in puts
        )
        marks = sum(not is_order_key(put.key) for put in puts)
        if puts[-1].key != COMMITS_KEY or not marks:
            return await self._inner(table, puts)
        if self.hold is not None:
            self.held.set()
            await self.hold.wait()
        try:
            versions = await self._inner(table, puts)
        except VersionConflict:
            self.conflicts += 1
            raise
        self.sizes.append(marks)
        if self.lose_answer:
            self.lose_answer = False
            raise UnknownOutcome("the answer is lost")
        return versions


async def begun(world: World, instance: Instance, count: int) -> list[uuid.UUID]:
    return [(await world.begin(instance, "scope", "stream", f"e{number}")).id for number in range(count)]


async def commit_all(world: World, instance: Instance, ids: Sequence[uuid.UUID]) -> list[Any]:
    calls = (instance.transactions.commit("scope", "stream", identifier) for identifier in ids)
    return await world.run(asyncio.gather(*calls, return_exceptions=True))


async def committed(world: World, instance: Instance, ids: Sequence[uuid.UUID]) -> None:
    for identifier in ids:
        while True:
            state = await world.run(instance.transactions.transaction_state("scope", "stream", identifier))
            if state is TransactionState.COMMITTED:
                break
            assert state is TransactionState.COMMITTING
            await world.clock.pass_time(0.1)


async def test_concurrent_commits_share_their_writes(world: World) -> None:
    instance = await world.instance()
    ids = await begun(world, instance, 100)
    writes = Writes(world)
    assert await commit_all(world, instance, ids) == [True] * 100
    assert sum(writes.sizes) == 100
    assert len(writes.sizes) + writes.conflicts <= 8
    await committed(world, instance, ids)
    assert writes.rounds <= 4
    for events in world.segments.stream_events("scope", "stream").values():
        assert sorted(events) == sorted(f"e{number}" for number in range(100))


async def test_two_controllers_keep_every_commit(world: World) -> None:
    one, two = await world.instance(), await world.instance()
    ids = await begun(world, one, 60)
    both = asyncio.gather(
        *(instance.transactions.commit("scope", "stream", identifier) for identifier in ids for instance in (one, two))
    )
    assert await world.run(both) == [True] * 120
    await committed(world, one, ids)
    for events in world.segments.stream_events("scope", "stream").values():
        assert len(events) == 60


async def test_an_order_in_blocks_survives_a_controller(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "block_transactions_max", 3)
    one, two = await world.instance(), await world.instance()
    ids = await begun(world, one, 60)
    monkeypatch.setattr(one.transactions.scheduler, "schedule_commit", _scheduled_later)
    for identifier in ids:
        assert await world.run(one.transactions.commit("scope", "stream", identifier))
    state = await one.transactions.records.commit_state("scope", "stream")
    assert len(state.queue.blocks) == 20 and state.queue.count == 60
    assert len(await one.transactions.records.active("scope", "stream")) == 60
    await world.run(one.kill())
    monkeypatch.setattr(commit_transactions, "commit_batch_max", 7)
    await world.run(two.transactions.scheduler.schedule_commit("scope", "stream"))
    await committed(world, two, ids)
    expected = [f"e{number}" for number in range(60)]
    assert list(world.segments.stream_events("scope", "stream").values()) == [expected] * 2
    assert (await two.transactions.records.commit_state("scope", "stream")).is_idle


async def _scheduled_later(scope: str, stream: str) -> None:
    """In place of a schedule: nothing leaves the order."""


async def test_transactions_leave_the_middle_of_an_order_in_blocks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_queue, "block_transactions_max", 3)
    one = await world.instance()
    monkeypatch.setattr(one.transactions.scheduler, "schedule_commit", _scheduled_later)
    ids = await begun(world, one, 40)
    for identifier in ids:
        assert await world.run(one.transactions.commit("scope", "stream", identifier))
    records = one.transactions.records
    old = await records.with_next_blocks("scope", "stream", await records.commit_state("scope", "stream"), 4)
    await records.drop_from_queue("scope", "stream", old, [ids[1], ids[20], ids[39]])
    with pytest.raises(VersionConflict):
        await records.drop_from_queue("scope", "stream", old, [ids[0]])
    # A block that is not as the head names it shows that the order moved on: it is read again.
    moved = await records.with_next_blocks("scope", "stream", old, 40)
    left = [item for item in ids if item not in (ids[1], ids[20], ids[39])]
    assert moved.queue_version > old.queue_version and list(moved.queue.next_batch(moved.blocks)) == left


async def test_one_transaction_asked_for_twice_at_once_enters_once(world: World) -> None:
    instance = await world.instance()
    [identifier, other] = await begun(world, instance, 2)
    assert await commit_all(world, instance, [identifier, other, identifier]) == [True] * 3
    await committed(world, instance, [identifier, other])
    assert all(len(events) == 2 for events in world.segments.stream_events("scope", "stream").values())


async def test_a_lost_answer_is_found_out_by_each(world: World) -> None:
    instance = await world.instance()
    ids = await begun(world, instance, 10)
    writes = Writes(world)
    writes.lose_answer = True
    assert await commit_all(world, instance, ids) == [True] * 10
    assert sum(writes.sizes) == 10
    await committed(world, instance, ids)


async def test_one_that_was_aborted_meanwhile_does_not_hold_up_the_others(world: World) -> None:
    instance = await world.instance()
    ids = await begun(world, instance, 5)
    writes = Writes(world)
    writes.hold = asyncio.Event()
    calls = asyncio.ensure_future(
        asyncio.gather(*(instance.transactions.commit("scope", "stream", identifier) for identifier in ids))
    )
    await world.run(writes.held.wait())
    found = await instance.transactions.records.get("scope", "stream", ids[2])
    assert found is not None
    aborting = dataclasses.replace(found.record, state=TransactionState.ABORTING)
    await instance.transactions.records.put_many("scope", "stream", [(ids[2], aborting, found.version)])
    writes.hold.set()
    writes.hold = None
    assert await world.run(calls) == [True, True, False, True, True]


async def test_a_caller_that_is_cancelled_while_it_writes_leaves_nobody_waiting(world: World) -> None:
    instance = await world.instance()
    ids = await begun(world, instance, 4)
    writes = Writes(world)
    writes.hold = asyncio.Event()
    calls = [asyncio.ensure_future(instance.transactions.commit("scope", "stream", identifier)) for identifier in ids]
    await world.run(writes.held.wait())
    calls[0].cancel()
    hold, writes.hold = writes.hold, None
    outcomes = await world.run(asyncio.gather(*calls, return_exceptions=True))
    hold.set()
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [True] * 3
    await committed(world, instance, ids[1:])
    assert not instance.transactions.order._lines


async def test_a_full_order_refuses_those_that_do_not_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "commit_queue_max", 3)
    instance = await world.instance()
    ids = await begun(world, instance, 5)
    state = await instance.transactions.records.commit_state("scope", "stream")
    found = await instance.transactions.records.get_many("scope", "stream", ids)
    changes = [
        (identifier, dataclasses.replace(item.record, state=TransactionState.COMMITTING), item.version)
        for identifier, item in zip(ids, found, strict=True)
        if item is not None
    ]
    order = instance.transactions.order
    adding = asyncio.gather(
        *(order.add("scope", "stream", [change], state) for change in changes), return_exceptions=True
    )
    outcomes = await world.run(adding)
    assert outcomes[:3] == [None] * 3
    assert all(isinstance(outcome, Throttled) for outcome in outcomes[3:])


def test_a_write_takes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_order, "changes_per_write_max", 3)
    line = commit_order._Line()
    record: Any = None
    for _ in range(5):
        line.waiting.append(commit_order._Entry([(uuid.uuid4(), record, 1)], None, None))  # type: ignore[arg-type]
    assert [len(line.take()), len(line.take())] == [3, 2]
