"""The index of sinks with work to do: what a sweep costs, when sinks are forgotten, and races about an entry."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from controller_service.sets import sink_index
from controller_service.sets.sink_index import DAYS_TABLE, UNFINISHED_TABLE, day_ms
from controller_service.sets.sink_store import REGISTRATIONS_TABLE, SETS_TABLE, SinkStore
from controller_service.sets.transaction_set import SetRecordState, SinkRecord, Verdict, sink_key
from controller_service.sets.transaction_set_service import record_kept_ms, sweep_period_s
from controller_service.store.versioned_store import ABSENT
from pravega_common.errors import VersionConflict
from pravega_common.model.transaction_sets import UNNAMED_PREFIX
from tests.support.transaction_world import Crashed, Instance, World

S, T = "scope", "stream"
Q, D = "query", "scope/*"


@pytest.fixture
async def one(world: World) -> Instance:
    return await world.instance()


async def commit_empty(world: World, one: Instance, query: str, batch: int = 0) -> None:
    answer = await world.run(one.sets.commit(query, D, "run", batch, [], 0, 0))
    assert answer.verdict is Verdict.COMMITTED


async def keys_of(world: World, table: str) -> list[str]:
    return [key for key, _ in (await world.store.scan(table, count_max=1_000)).entries]


def days_of(world: World) -> list[str]:
    """The tables of days on which sinks may be forgotten."""
    return [name for name in world.store._tables if name.startswith("transactionSetsExpiring")]  # type: ignore[attr-defined]


async def calls_of_a_sweep(world: World, one: Instance) -> int:
    before = one.switch.count
    await world.run(one.sets.sweep())
    return one.switch.count - before


async def test_a_sweep_does_not_read_the_sinks_that_merely_exist(world: World, one: Instance) -> None:
    await world.clock.pass_time(1)
    idle = await calls_of_a_sweep(world, one)
    for number in range(200):
        await commit_empty(world, one, f"query-{number}")
    member = await world.member(one, S, T, "a", 0)
    await world.run(one.sets.register(Q, D, "run", 0, [member]))
    await world.clock.pass_time(90)
    assert await keys_of(world, UNFINISHED_TABLE) == [sink_key(Q, D)]
    # The index, the record, and the registrations of its batch.
    assert await calls_of_a_sweep(world, one) - idle <= 3


async def test_the_sink_of_a_write_without_a_name_is_forgotten_soon(world: World, one: Instance) -> None:
    await commit_empty(world, one, f"{UNNAMED_PREFIX}{'0' * 32}")
    await commit_empty(world, one, "named")
    world.clock.skip(3 * day_ms / 1000)
    await world.clock.pass_time(sweep_period_s * 2)
    assert await keys_of(world, SETS_TABLE) == [sink_key("named", D)]


async def test_a_sink_that_is_used_is_not_forgotten_and_days_have_an_end(world: World, one: Instance) -> None:
    for batch in range(12):
        await commit_empty(world, one, Q, batch)
        world.clock.skip(10 * day_ms / 1000)
        await world.clock.pass_time(sweep_period_s * 2)
    [record], _ = await world.run(one.sets.list_sinks())
    assert record.last_batch_id == 11
    world.clock.skip((record_kept_ms + 2 * day_ms) / 1000)
    await world.clock.pass_time(sweep_period_s * 2)
    assert await world.run(one.sets.list_sinks()) == ([], b"")
    assert days_of(world) == []


async def test_a_day_of_many_sinks_is_forgotten_in_pieces(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await commit_empty(world, one, f"{UNNAMED_PREFIX}{number:032}")
    monkeypatch.setattr(sink_index, "page_size", 2)
    monkeypatch.setattr(sink_index, "pages_per_look_max", 2)
    index, later_ms = one.sets._index, world.clock.wall_ms() + 3 * day_ms
    left = []
    for _ in range(3):
        await world.run(index.forget_expired(later_ms))
        left.append(len(await keys_of(world, SETS_TABLE)))
    assert left == [3, 0, 0] and days_of(world) == []


async def test_a_sink_that_changes_just_now_keeps_nobody_else_from_being_forgotten(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = sink_key(f"{UNNAMED_PREFIX}{0:032}", D)
    for number in range(5):
        await commit_empty(world, one, f"{UNNAMED_PREFIX}{number:032}")
    registered = SinkStore(world.store)
    await registered.add_registrations(sink_key("gone", D), 0, 0, [], world.clock.wall_ms())
    remove = world.store.remove

    async def losing(table: str, key: str, *version: int) -> None:
        if (table, key) == (SETS_TABLE, busy):
            raise VersionConflict("changed just now")
        await remove(table, key, *version)

    monkeypatch.setattr(world.store, "remove", losing)
    world.clock.skip(3 * day_ms / 1000)
    await world.run(one.sets.sweep())
    assert await keys_of(world, SETS_TABLE) == [busy]
    assert await keys_of(world, REGISTRATIONS_TABLE) == []  # the janitor had its turn, too
    monkeypatch.setattr(world.store, "remove", remove)
    await world.run(one.sets.sweep())
    assert await keys_of(world, SETS_TABLE) == [] and days_of(world) == []


async def test_what_a_former_version_left_unfinished_is_found(world: World, one: Instance) -> None:
    member = await world.member(one, S, T, "a", 0)
    one.die_at("transaction_set.commit_recorded")
    with pytest.raises(Crashed):
        await world.run(one.sets.commit(Q, D, "run", 0, [member], 1, 10))
    await world.run(one.kill())
    sinks = SinkStore(world.store)
    found = await sinks.read(sink_key(Q, D))
    assert found is not None
    await sinks.write(sink_key(Q, D), dataclasses.replace(found.record, indexed=False, expiry_day=-1), found.version)
    for table in (UNFINISHED_TABLE, DAYS_TABLE):
        await world.store.delete_table(table)
    other = await world.instance()
    await world.clock.pass_time(10)
    [record], _ = await world.run(other.sets.list_sinks())
    assert record.last is not None and record.last.state is SetRecordState.FINISHED


async def test_a_slow_writer_of_a_new_sink_does_not_lose_its_entry(world: World, one: Instance) -> None:
    """It has put the entry; a sweep finds no record for it; then the record comes."""
    key = sink_key(Q, D)
    index, sinks = one.sets._index, SinkStore(world.store)
    late = await index.noted(key, SinkRecord(Q, D, open_batches=(1,)), world.clock.wall_ms())
    await world.run(one.sets.sweep())
    assert await keys_of(world, UNFINISHED_TABLE) == []
    with pytest.raises(VersionConflict):
        await sinks.write(key, late, ABSENT)
    await world.run(one.sets.register(Q, D, "run", 1, []))
    assert await keys_of(world, UNFINISHED_TABLE) == [key]


async def test_an_entry_that_comes_while_a_sweep_removes_it_stays(world: World, one: Instance) -> None:
    await commit_empty(world, one, Q)
    await world.run(one.sets.register(Q, D, "run", 1, []))
    index = one.sets._index
    [found] = [item async for item in index.unfinished()]
    assert found.sink is not None
    settled = dataclasses.replace(found.sink.record, open_batches=(), touched_ms=0)
    version = await SinkStore(world.store).write(found.key, settled, found.sink.version)
    seen = dataclasses.replace(found, sink=dataclasses.replace(found.sink, record=settled, version=version))
    remove = world.store.remove

    async def late(*args: Any) -> None:
        world.store.remove = remove  # type: ignore[method-assign]
        await one.sets.register(Q, D, "run", 2, [])
        await remove(*args)

    world.store.remove = late  # type: ignore[method-assign, assignment]
    with pytest.raises(VersionConflict):
        await world.run(index.remove_if_settled(seen, world.clock.wall_ms()))
    assert await keys_of(world, UNFINISHED_TABLE) == [found.key]


async def test_a_crash_at_the_clearing_of_batches_leaves_no_registrations(world: World, one: Instance) -> None:
    member = await world.member(one, S, T, "a", 0)
    orphan = await world.member(one, S, T, "b", 1)
    await world.run(one.sets.register(Q, D, "run", 0, [member, orphan]))
    answered = await world.run(one.sets.commit(Q, D, "run", 0, [member], 1, 10))
    assert answered.verdict is Verdict.COMMITTED
    apply = one.sets._steps.apply

    async def crash_after(key: str, event: Any) -> None:
        await apply(key, event)
        if type(event).__name__ == "BatchesCleared":
            one.switch.crash()

    one.sets._steps.apply = crash_after  # type: ignore[method-assign]
    await world.clock.pass_time(5)
    assert one.switch.crashed
    await world.run(one.kill())
    await world.instance()
    await world.clock.pass_time(60)
    assert await keys_of(world, REGISTRATIONS_TABLE) == []
