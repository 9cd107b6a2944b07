"""Runs the table of a reader group over the wire: two clients, lost races, lost answers, tombstones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pravega_common.errors import (
    AlreadyExists,
    DataCorruption,
    InvalidArgument,
    NotFound,
    PravegaError,
    Unavailable,
    UnknownOutcome,
)
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers import checkpoints, group_table, transitions
from pravega_streams.readers.group_records import FUTURE, UNASSIGNED, key_of
from pravega_streams.readers.group_state import HEAD, GroupConfiguration, GroupMember, GroupState
from pravega_streams.readers.group_table import GroupTable, tombstones_max
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import NOT_EXISTS, TableClient, TableDelta, TableItem
from tests.support.fakes.clock import ManualClock
from tests.unit.pravega_streams.conftest import ScriptedResolver

S0, S1 = "s/t/0.#epoch.0", "s/t/1.#epoch.0"
CONFIG = GroupConfiguration({("s", "t"): HEAD})
START = GroupState(CONFIG, {S0: 0, S1: 0})
R1, R2 = GroupMember("r1", 1), GroupMember("r2", 2)


class LosingTables(TableClient):
    """Loses answers of puts that were done, and looks before other clients have written, as often as it is set to."""

    answers_to_lose = 0
    hidden_deltas = 0
    """Delta reads that are answered as if nothing had been written yet."""

    async def delta(self, segment: str, from_position: int, count_max: int) -> TableDelta:
        if self.hidden_deltas:
            self.hidden_deltas -= 1
            return TableDelta([], False, True, 0)
        return await super().delta(segment, from_position, count_max)

    async def put(self, segment: str, items: list[TableItem]) -> list[int]:  # type: ignore[override]
        versions = await super().put(segment, items)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise UnknownOutcome("the answer was lost")
        return versions


@pytest.fixture
async def tables(endpoint: Endpoint) -> AsyncIterator[LosingTables]:
    client = RawClient(ScriptedResolver(endpoint))
    yield LosingTables(client)
    client.close()


class NoWait(ManualClock):
    """A clock on which nobody waits."""

    async def sleep(self, delay_s: float) -> None:
        await self.advance(delay_s)


def table(tables: TableClient, group: str = "g") -> GroupTable:
    return GroupTable(tables, "s", group, clock=NoWait())


async def test_a_group_is_made_once(tables: TableClient) -> None:
    first, second = table(tables), table(tables)
    assert await first.create(START) == START
    assert await second.create(GroupState(CONFIG, {S0: 99})) == START
    assert await first.delete() and not await second.delete()
    with pytest.raises(NotFound):
        await second.refresh()
    with pytest.raises(NotFound):
        await table(tables, "other").refresh()


async def test_the_second_of_two_creations_at_once_changes_nothing(tables: LosingTables) -> None:
    first, second = table(tables), table(tables)
    await first.create(START)
    joined = await first.update(lambda state: transitions.add_reader(state, R1))
    tables.hidden_deltas = 1
    assert await second.create(GroupState(CONFIG, {S0: 99})) == joined == await first.refresh()


async def test_updates_of_two_clients_follow_one_another(tables: TableClient) -> None:
    first, second = table(tables), table(tables)
    await first.create(START)
    await second.refresh()
    await first.update(lambda state: transitions.add_reader(state, R1))
    await second.update(lambda state: transitions.add_reader(state, R2))
    with pytest.raises(AlreadyExists):
        await first.update(lambda state: transitions.add_reader(state, GroupMember("r2", 3)))
    await first.update(lambda state: transitions.acquire(state, R1))
    state = await second.update(lambda state: transitions.acquire(state, R2))
    assert state.assigned == {"r1": {S0: 0}, "r2": {S1: 0}}
    assert await first.refresh() == state == await table(tables).create(START)


async def test_tasks_that_share_a_table_take_turns(tables: TableClient) -> None:
    """As of a program that takes all readers that died offline at a time."""
    group = table(tables)
    await group.create(START)
    names = [f"r{number}" for number in range(12)]
    for number, name in enumerate(names):
        member = GroupMember(name, number + 1)
        await table(tables).update(lambda state, member=member: transitions.add_reader(state, member))  # type: ignore[misc]
    await asyncio.gather(
        *(group.update(lambda state, name=name: transitions.remove_reader(state, name)) for name in names),  # type: ignore[misc]
        *(group.refresh() for _ in names),
    )
    assert (await group.refresh()).readers == []


async def test_a_refusal_is_decided_on_the_latest_state(tables: TableClient) -> None:
    first, second = table(tables), table(tables)
    await first.create(START)
    await first.update(lambda state: transitions.add_reader(state, R1))
    await second.refresh()
    await first.update(lambda state: transitions.remove_reader(state, "r1"))
    state = await second.update(lambda state: transitions.add_reader(state, GroupMember("r1", 9)))
    assert state.incarnations == {"r1": 9}


async def test_a_call_with_nothing_to_do_is_decided_on_the_latest_state(tables: TableClient) -> None:
    first, second = table(tables), table(tables)
    await first.create(START)
    await second.refresh()
    await first.update(lambda state: transitions.add_reader(state, R1))
    state = await second.update(lambda state: transitions.remove_reader(state, "r1"))
    assert state.readers == [] == (await first.refresh()).readers


async def test_an_update_whose_answer_was_lost_is_not_done_twice(tables: LosingTables) -> None:
    mine = table(tables)
    await mine.create(START)
    tables.answers_to_lose = 1
    state = await mine.update(lambda state: transitions.add_reader(state, R1))
    assert state.incarnations == {"r1": 1}
    calls = []

    def acquire(state: GroupState) -> GroupState:
        calls.append(1)
        return transitions.acquire(state, R1)

    tables.answers_to_lose = 2
    state = await mine.update(acquire)
    assert state.assigned == {"r1": {S0: 0, S1: 0}} and len(calls) == 2


@pytest.mark.parametrize("failure", [Unavailable("the store is away"), InvalidArgument("the client is closed")])
async def test_an_update_of_which_nobody_can_learn_is_not_told_as_not_done(
    tables: LosingTables, failure: PravegaError, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = table(tables)
    await group.create(START)

    async def away(*_: object) -> TableDelta:
        raise failure

    with monkeypatch.context() as patched, pytest.raises(UnknownOutcome, match="may have been done"):
        tables.answers_to_lose = 1
        patched.setattr(tables, "delta", away)
        await group.update(lambda state: transitions.add_reader(state, R1))
    assert (await group.refresh()).readers == ["r1"]


async def test_a_checkpoint_is_begun_once_by_who_loses_the_answer_and_by_nobody_who_loses_the_race(
    tables: LosingTables,
) -> None:
    first, second = table(tables), table(tables)
    await first.create(START)
    await second.refresh()
    tables.answers_to_lose = 1
    state = await first.update(lambda state: checkpoints.initiate(state, "c", 7))
    with pytest.raises(AlreadyExists):
        await second.update(lambda state: checkpoints.initiate(state, "c", 8))
    assert await second.refresh() == state


async def test_tombstones_are_bounded(tables: TableClient) -> None:
    mine, other = table(tables), table(tables)
    await mine.create(START)
    await mine.update(lambda state: transitions.add_reader(state, R1))
    await mine.update(lambda state: transitions.acquire(state, R1))
    names = [f"s/t/{number}.#epoch.1" for number in range(2 * tombstones_max)]
    await mine.update(lambda state: replace(state, unassigned=dict.fromkeys(names, 0)))
    await mine.update(lambda state: replace(state, unassigned={}))
    keys = [key_of(UNASSIGNED, name) for name in [S0, S1, *names]]
    there = [item for item in await tables.get(mine.segment, keys) if item.value]
    assert len(there) <= tombstones_max
    # A segment that is owned may be given back by another client, which knows the version of its tombstone.
    assert {item.key for item in there} >= set(keys[:2])
    assert await other.refresh() == mine.state
    state = await other.update(lambda state: transitions.release(state, R1, {S0: 5}))
    assert state.unassigned == {S0: 5}


@pytest.mark.parametrize("has_looked", [False, True])
@pytest.mark.parametrize("entries_of_a_page", [1_000, 50])
async def test_a_client_that_looks_rarely_knows_of_no_reader_and_segment_that_is_gone(
    tables: TableClient, monkeypatch: pytest.MonkeyPatch, entries_of_a_page: int, has_looked: bool
) -> None:
    """What another client knows of them is removed with their tombstones, and is in no look that goes on."""
    monkeypatch.setattr(group_table, "page_entries", entries_of_a_page)
    rare, busy = table(tables), table(tables)
    await rare.create(START)
    await rare.update(lambda state: transitions.add_reader(state, R1))
    if has_looked:
        await rare.refresh()
    assert "r1" in rare.state.readers and S0 in rare.state.unassigned
    await busy.refresh()
    await busy.update(lambda state: transitions.remove_reader(state, "r1"))
    await busy.update(lambda state: replace(state, unassigned={S1: 0}))
    for number in range(tombstones_max // 2):
        member = GroupMember(f"pod-{number}", number + 1)
        await busy.update(lambda state, member=member: transitions.add_reader(state, member))  # type: ignore[misc]
        await busy.update(lambda state, member=member: transitions.remove_reader(state, member.reader))  # type: ignore[misc]
    await busy.update(lambda state: transitions.add_reader(state, R2))
    gone = [item.value for item in await tables.get(busy.segment, [key_of(UNASSIGNED, S0)])]
    assert not any(gone), "its tombstone was removed"
    assert await rare.refresh() == busy.state == await table(tables).refresh()
    assert (rare.state.readers, rare.state.unassigned) == (["r2"], {S1: 0})


async def test_a_second_look_that_fails_is_no_loss_of_the_group(
    tables: LosingTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = table(tables)
    await mine.create(START)
    await mine.refresh()

    async def lost(*_: object) -> None:
        raise UnknownOutcome("not done")

    async def delta(segment: str, from_position: int, count_max: int) -> TableDelta:
        if from_position == 0:
            raise Unavailable("away")
        return await TableClient.delta(tables, segment, from_position, count_max)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "put", lost)
        patched.setattr(tables, "delta", delta)
        with pytest.raises(UnknownOutcome):
            await mine.update(lambda state: transitions.add_reader(state, R1))
        assert mine.state == START
    assert (await mine.update(lambda state: transitions.add_reader(state, R1))).readers == ["r1"]


async def test_an_update_is_done_where_only_the_removal_of_tombstones_fails(
    tables: TableClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = table(tables)
    await mine.create(START)
    names = [f"s/t/{number}.#epoch.1" for number in range(2 * tombstones_max)]
    await mine.update(lambda state: replace(state, unassigned={**state.unassigned, **dict.fromkeys(names, 0)}))

    async def away(*_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "remove", away)
        await mine.update(lambda state: replace(state, unassigned={S0: 0}))
    assert (await table(tables).refresh()).unassigned == {S0: 0}
    await mine.update(lambda state: replace(state, unassigned={S0: 1}))
    keys = [key_of(UNASSIGNED, name) for name in names]
    assert len([item for item in await tables.get(mine.segment, keys) if item.value]) <= tombstones_max


async def test_a_group_that_was_made_again_is_read_from_its_beginning(tables: TableClient) -> None:
    mine = table(tables)
    await mine.create(START)
    for number in range(1, 20):
        await mine.update(lambda state, n=number: transitions.add_reader(state, GroupMember("r", n)))  # type: ignore[misc]
        await mine.update(lambda state: transitions.remove_reader(state, "r"))
    await table(tables).delete()
    await table(tables).create(GroupState(CONFIG, {S0: 7}))
    assert await mine.refresh() == GroupState(CONFIG, {S0: 7})


async def test_a_group_that_was_made_again_and_grew_beyond_what_was_read_is_no_damage(tables: TableClient) -> None:
    """The entries from before the place of the last look are those of the old group: a segment stands in two places."""
    mine, other = table(tables), table(tables)
    await mine.create(START)
    for number in range(1, 20):
        await mine.update(lambda state, n=number: transitions.add_reader(state, GroupMember("r", n)))  # type: ignore[misc]
        await mine.update(lambda state: transitions.remove_reader(state, "r"))
    await mine.update(lambda state: transitions.add_reader(state, R1))
    await mine.refresh()
    await other.delete()
    await other.create(START)
    await other.update(lambda state: transitions.acquire(transitions.add_reader(state, R2), R2))
    for offset in range(1, 100):
        await other.update(lambda state, n=offset: transitions.record(state, R2, {S0: n}))  # type: ignore[misc]
    assert await mine.refresh() == other.state
    with pytest.raises(ReaderOffline):
        await mine.update(lambda state: transitions.acquire(state, R1))


async def test_damage_is_not_passed_over_and_what_came_before_it_is_not_missed(tables: TableClient) -> None:
    """The entries before it in the answer were taken over, and the state was not made of them."""
    first, second = table(tables), table(tables)
    await first.create(START)
    await first.update(lambda state: transitions.add_reader(state, R1))
    await second.update(lambda state: transitions.acquire(transitions.add_reader(state, R2), R2))
    damaged = TableItem(key_of(FUTURE, "s/t/9.#epoch.1"), b"no value", NOT_EXISTS)
    (version,) = await tables.put(first.segment, [damaged])
    for _ in range(2):
        with pytest.raises(DataCorruption):
            await first.refresh()
    await tables.remove(first.segment, [(damaged.key, version)])
    state = await first.update(lambda state: transitions.acquire(state, R1))
    assert state.assigned == {"r1": {S1: 0}, "r2": {S0: 0}}
    assert await table(tables).refresh() == state
