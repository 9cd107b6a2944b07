"""Streams come, and get tags, while their scope is deleted with all that it has: nothing is left of either.

And a stream that stands is put on its list again while its deletion begins: its records are left to that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import STATE, StateRecord, StreamEntry, StreamState
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import ScopeNotFound
from pravega_common.runtime.clock import SystemClock

S = "scope"
calls_max = 30
"""More than there are in adding an entry, or in changing its tags."""


class PausingStore(InMemoryVersionedStore):
    """Lets something else happen before one of its calls, which are counted from ``reset`` on."""

    def __init__(self) -> None:
        super().__init__()
        self.reset(-1, None)

    def reset(self, pause_at: int, meanwhile: Callable[[], Awaitable[None]] | None) -> None:
        self.calls, self._pause_at, self._meanwhile = 0, pause_at, meanwhile

    async def _count(self) -> None:
        self.calls += 1
        if self.calls == self._pause_at and (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            await meanwhile()

    async def create_table(self, table: str) -> None:
        await self._count()
        await super().create_table(table)

    async def get_many(self, table: str, keys: Any) -> Any:
        await self._count()
        return await super().get_many(table, keys)

    async def put_many(self, table: str, puts: Any) -> list[int]:
        await self._count()
        return await super().put_many(table, puts)

    async def delete_table(self, table: str) -> None:
        await self._count()
        await super().delete_table(table)

    def names(self) -> set[str]:
        return set(self._tables)


class Race:
    """One controller works on a stream, and another one deletes its scope before one of the calls to the store."""

    def __init__(self) -> None:
        self.tables, numbers = PausingStore(), itertools.count()
        self.store, self.other = (
            StreamStore(self.tables, SystemClock(), lambda: f"id{next(numbers)}", name) for name in ("one", "two")
        )

    async def delete_scope(self) -> None:
        record = await self.other.scope(S)
        assert record is not None
        await self.other.close_scope(S, record.scope_id)
        for name, entry in (await self.other.list_streams(S))[0]:
            await self.other.remove_stream(S, name, entry.stream_id)
        await self.other.remove_scope(S, record.scope_id)

    async def replace_scope(self) -> None:
        await self.delete_scope()
        await self.other.create_scope(S)

    async def run(self, pause_at: int, again: bool, work: Callable[[], Awaitable[Any]]) -> None:
        """Nothing is left once the scope, or the next one of the name, is deleted."""
        self.tables.reset(pause_at, self.replace_scope if again else self.delete_scope)
        with contextlib.suppress(ScopeNotFound):
            await work()
        self.tables.reset(-1, None)
        if await self.store.scope(S) is not None:
            await self.delete_scope()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("pause_at", range(1, calls_max))
async def test_nothing_is_left_of_a_stream_whose_scope_is_deleted(pause_at: int, again: bool) -> None:
    race = Race()
    await race.store.create_system_tables()
    before = race.tables.names()
    await race.store.create_scope(S)
    await race.run(pause_at, again, lambda: race.store.add_entry(S, "stream", ("red",)))
    assert race.tables.names() == before


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("pause_at", range(1, calls_max))
async def test_nothing_is_left_of_tags_that_come_when_the_scope_is_deleted(pause_at: int, again: bool) -> None:
    race = Race()
    await race.store.create_system_tables()
    before = race.tables.names()
    await race.store.create_scope(S)
    entry, _ = await race.store.add_entry(S, "stream", ("red",))
    await race.run(pause_at, again, lambda: race.store.set_tags(S, "stream", entry.stream_id, ("blue", "green")))
    assert race.tables.names() == before


async def stream_with_records(race: Race) -> StreamEntry:
    await race.store.create_system_tables()
    await race.store.create_scope(S)
    entry, _ = await race.store.add_entry(S, "stream", ())
    await race.other.update(S, "stream", lambda context: context.put(STATE, StateRecord(StreamState.ACTIVE)))
    return entry


async def test_no_tables_are_made_for_a_stream_that_has_records() -> None:
    """Who makes them and dies behind the deletion of the stream would leave them."""
    race = Race()
    entry = await stream_with_records(race)
    made: list[str] = []

    async def note(table: str) -> None:
        made.append(table)

    race.tables.create_table = note  # type: ignore[method-assign]
    assert await race.store.add_entry(S, "stream", ()) == (entry, False)
    assert made == []


@pytest.mark.parametrize("pause_at", range(1, calls_max))
async def test_the_records_of_a_stream_that_is_marked_for_its_deletion_stay(pause_at: int) -> None:
    """The removal of a reader group marks the entry first, and finds the segments by the records afterwards."""
    race = Race()
    entry = await stream_with_records(race)

    async def mark() -> None:
        found = await race.other.listed(S, "stream")
        assert found is not None
        await race.other.replace_entry(found, dataclasses.replace(entry, deleting=True))

    race.tables.reset(pause_at, mark)
    await race.store.add_entry(S, "stream", ())
    assert await race.tables.get(race.store.metadata_table(S, "stream", entry.stream_id), STATE.name) is not None
