"""The streams that a controller looks after: the cost of its sweep, and what dead and former controllers left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.versioned_store import ABSENT
from controller_service.transactions import lifecycle
from controller_service.transactions.stream_index import FORMER_TABLE, OWNERS_TABLE, StreamIndex, kept_s
from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.clock import SystemClock
from tests.support.transaction_world import Crashed, Instance, World

S, T = "scope", "stream"


@pytest.fixture
async def one(world: World) -> Instance:
    return await world.instance()


async def calls_of_a_sweep(world: World, one: Instance) -> int:
    before = one.switch.count
    await world.run(one.transactions.sweep())
    return one.switch.count - before


async def commit(world: World, one: Instance, stream: str) -> None:
    created = await world.begin(one, S, stream, "a")
    assert await world.run(one.transactions.commit(S, stream, created.id))


async def test_a_sweep_does_not_look_at_streams_that_merely_had_transactions(world: World, one: Instance) -> None:
    other = await world.instance()
    await world.clock.pass_time(1)
    idle = await calls_of_a_sweep(world, other)
    for number in range(30):
        await world.create_stream(S, f"stream-{number}")
        await commit(world, one, f"stream-{number}")
    await commit(world, one, T)
    assert await calls_of_a_sweep(world, other) == idle
    await world.clock.pass_time(kept_s + 130)
    # One more than idle: whether others hold this controller for dead.
    assert await calls_of_a_sweep(world, one) == idle + 1
    assert one.transactions.index.own() == []
    created = await world.begin(one, S, T, "b")
    assert one.transactions.index.own() == [(S, T)]
    assert await world.run(one.transactions.abort(S, T, created.id))


async def test_what_a_dead_controller_decided_and_did_not_schedule_is_done(world: World, one: Instance) -> None:
    """It neither began the transactions nor had them scheduled: only its own entry leads to them."""
    other = await world.instance()
    committed = await world.begin(one, S, T, "a")
    aborted = await world.begin(one, S, T, "b")
    decisions: dict[str, Callable[[Instance], Awaitable[object]]] = {
        "transaction_commit.marked": lambda it: it.transactions.commit(S, T, committed.id),
        "transaction_abort.marked": lambda it: it.transactions.abort(S, T, aborted.id),
    }
    for failpoint, decide in decisions.items():
        dying = await world.instance()
        dying.die_at(failpoint)
        with pytest.raises(Crashed):
            await world.run(decide(dying))
        await world.run(dying.kill())
    await world.clock.pass_time(70)
    states = [await world.run(one.transactions.transaction_state(S, T, item.id)) for item in (committed, aborted)]
    assert states == [TransactionState.COMMITTED, TransactionState.ABORTED]
    owners = [key for key, _ in (await world.store.scan(OWNERS_TABLE)).entries]
    assert set(owners) <= {one.name, other.name}


async def test_streams_whose_container_is_away_hold_up_no_others(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither this controller's own, nor those of a dead one whose other stream has a commit to be done."""
    monkeypatch.setattr(lifecycle, "sweep_time_max_s", 0.05)
    dying = await world.instance()
    for number in range(50):
        await world.create_stream(S, f"away-{number}")
        await world.run((one if number % 2 else dying).transactions.index.use(S, f"away-{number}"))
    committed = await world.begin(one, S, T, "a")
    dying.die_at("transaction_commit.marked")
    with pytest.raises(Crashed):
        await world.run(dying.transactions.commit(S, T, committed.id))
    await world.run(dying.kill())
    store: Any = one.transactions.records._store
    scan, held = store.scan, []

    async def scan_what_is_there(table: str, *rest: Any) -> Any:
        if "/away-" in table:
            held.append(table)
            await asyncio.Event().wait()
        return await scan(table, *rest)

    monkeypatch.setattr(store, "scan", scan_what_is_there)
    async with asyncio.timeout(10):
        await one.transactions.sweep()
    assert (len(held), len(set(held))) == (75, 50), "those of the dead one are this one's by now"
    await world.clock.pass_time(2)
    assert await world.run(one.transactions.transaction_state(S, T, committed.id)) is TransactionState.COMMITTED


async def test_streams_of_a_former_version_are_looked_after(world: World, one: Instance) -> None:
    created = await world.begin(one, S, T, "a", lease_ms=10_000)
    await world.run(one.kill())
    await world.store.delete_table(f"transactionStreams-{one.name}")
    await world.store.delete_table(OWNERS_TABLE)
    await world.store.put(FORMER_TABLE, f"{S}/{T}", b"", ABSENT)
    other = await world.instance()
    await world.clock.pass_time(60)
    assert await world.run(other.transactions.transaction_state(S, T, created.id)) is TransactionState.ABORTED
    assert (await world.store.scan(FORMER_TABLE)).entries == ()


async def test_a_controller_that_was_held_for_dead_stands_again(world: World, one: Instance) -> None:
    created = await world.begin(one, S, T, "a", lease_ms=600_000)
    other = await world.instance()
    world.live.discard(one.name)
    await world.run(other.transactions.sweep())
    world.live.add(one.name)
    assert await world.run(other.transactions.index.streams_of(one.name)) == []
    await world.run(one.transactions.sweep())
    assert await world.run(other.transactions.index.streams_of(one.name)) == [(S, T)]
    assert await world.run(other.transactions.index.all_streams()) == [(S, T)]
    assert await world.run(one.transactions.abort(S, T, created.id))


async def test_a_controller_that_starts_under_the_sweep_of_another_is_not_held_for_dead(world: World) -> None:
    """It takes its lease and lists itself while the other one looks who is alive."""
    index = StreamIndex(world.store, "old", world.clock, world.live_owners)
    await index.create_tables()
    new = StreamIndex(world.store, "new", world.clock, world.live_owners)
    live_owners = world.live_owners

    async def start_meanwhile() -> set[str]:
        found = await live_owners()
        if "new" not in found:
            world.live.add("new")
            await new.use(S, T)
        return found

    index._live_owners = start_meanwhile
    assert await index.left() == []
    assert await index.left() == []


async def test_a_controller_that_was_held_for_dead_begins_work_on_another_stream(world: World) -> None:
    mine = StreamIndex(world.store, "mine", world.clock, world.live_owners)
    await mine.create_tables()
    await mine.use(S, T)
    await mine.forget_owner("mine")
    await mine.use(S, "another")
    assert sorted(await mine.streams_of("mine")) == [(S, "another"), (S, T)]
    assert await mine._keys(OWNERS_TABLE) == ["mine"]


async def test_a_stream_that_is_used_while_it_is_dropped_stays_in_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal of its entry takes effect late, behind an entry that is put at once."""

    async def nobody() -> set[str]:
        return set()

    store = InMemoryVersionedStore()
    index = StreamIndex(store, "one", SystemClock(), nobody)
    await index.create_tables()
    await index.use(S, T)
    remove, gate = store.remove, asyncio.Event()

    async def late_remove(*arguments: Any) -> None:
        await gate.wait()
        await remove(*arguments)

    monkeypatch.setattr(store, "remove", late_remove)
    dropped = asyncio.ensure_future(index.drop(S, T))
    await asyncio.sleep(0)
    used = asyncio.ensure_future(index.use(S, T))
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(dropped, used)
    assert (index.own(), await index.streams_of("one")) == ([(S, T)], [(S, T)])


@pytest.mark.parametrize("ending", ["lost", "cut off"])
async def test_an_entry_whose_putting_did_not_end_well_is_dropped_later(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    index: Any = one.transactions.index
    put = index._store.put

    async def put_without_an_answer(table: str, *rest: Any) -> int:
        version: int = await put(table, *rest)
        if table == OWNERS_TABLE:
            return version
        if ending == "lost":
            raise UnknownOutcome("connection lost")
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(index._store, "put", put_without_an_answer)
        with pytest.raises((UnknownOutcome, asyncio.CancelledError)):
            await index.use(S, T)
    assert await world.run(index.streams_of(one.name)) == [(S, T)]
    await world.clock.pass_time(kept_s + 130)
    assert await world.run(index.streams_of(one.name)) == []


async def test_an_entry_that_could_not_be_removed_is_dropped_later(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    index: Any = one.transactions.index
    remove, failures = index._store.remove, list[str]()

    async def remove_at_last(table: str, *rest: Any) -> None:
        if table == f"transactionStreams-{one.name}" and not failures:
            failures.append(table)
            raise Unavailable("its container is away")
        await remove(table, *rest)

    monkeypatch.setattr(index._store, "remove", remove_at_last)
    await world.run(index.use(S, T))
    await world.clock.pass_time(kept_s + 250)
    assert failures and await world.run(index.streams_of(one.name)) == []


async def test_an_entry_that_did_not_come_to_be_is_put_with_the_next_use(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    index: Any = one.transactions.index

    async def put(table: str, *rest: Any) -> int:
        raise UnknownOutcome("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(index._store, "put", put)
        with pytest.raises(UnknownOutcome):
            await index.use(S, T)
    await world.run(index.use(S, T))
    assert await world.run(index.streams_of(one.name)) == [(S, T)]
