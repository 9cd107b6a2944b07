"""Empty tables of a deleted stream stay, as behind a creation that died; the next stream of the name takes no harm.

One controller remembers the deleted stream: it has seen neither its deletion nor the creation of the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from controller_service.store.records import DELETION, STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.transactions.transaction_store import StreamTables, TransactionStore
from pravega_common.errors import StreamNotSealed
from pravega_common.model.transactions import PingStatus, TransactionState
from tests.support.transaction_world import Instance, World
from tests.support.workflow_steps import TWO, S, T


@dataclass
class MadeAgain:
    """A stream with events that has the name of a deleted one, tables of which are left."""

    world: World
    fresh: Instance
    """It made the stream."""
    stale: Instance
    """It remembers the deleted one."""
    former_tables: StreamTables

    async def events(self) -> list[str]:
        return await self.world.readable(S, T)


async def made_again(*left: str) -> MadeAgain:
    """``left``: the kinds of tables that are left."""
    world = World()
    await world.streams.create_system_tables()
    await world.streams.create_scope(S)
    fresh, stale = await world.instance(), await world.instance()
    await world.run(fresh.create.create(S, T, TWO))
    deleted = await stale.streams.open(S, T)
    former = await stale.transactions.records.tables(S, T)
    await world.run(fresh.seal.seal("seal", S, T))
    await world.run(fresh.delete.delete("delete", S, T))
    tables = {"metadata": deleted.metadata_table, "transactions": deleted.transactions_table}
    for kind in left:
        await world.store.create_table(tables[kind])
    assert await world.run(fresh.create.create(S, T, TWO))
    epoch = await (await fresh.streams.open(S, T)).current_epoch()
    for name in epoch.names(S, T):
        world.segments.write(name, "event")
    return MadeAgain(world, fresh, stale, former)


async def test_an_active_stream_is_not_deleted_for_the_missing_records_of_an_earlier_one() -> None:
    again = await made_again("metadata", "transactions")
    with pytest.raises(StreamNotSealed):
        await again.world.run(again.stale.delete.delete("second", S, T))
    assert await again.events() == ["event", "event"]
    await again.world.close()


async def test_a_stream_is_deleted_with_its_segments_beside_tables_of_an_earlier_one() -> None:
    """Left behind, they would be those of the next stream of the name, with their events."""
    again = await made_again("metadata", "transactions")
    world = again.world
    await world.run(again.fresh.seal.seal("second", S, T))
    await world.run(again.stale.delete.delete("second", S, T))
    assert world.segments.stream_events(S, T) == {}
    assert await world.run(again.fresh.create.create(S, T, TWO))
    assert await again.events() == []
    await world.close()


async def test_a_stream_that_is_made_again_is_found_beside_tables_of_an_earlier_one() -> None:
    again = await made_again("metadata", "transactions")
    world, stale = again.world, again.stale
    assert await (await stale.streams.open(S, T)).state() is StreamState.ACTIVE
    created = await world.begin(stale, S, T, "in a transaction")
    assert await world.run(stale.transactions.commit(S, T, created.id))
    await world.close()


async def test_a_stream_that_is_made_again_is_found_beside_one_that_is_marked_as_deleted() -> None:
    """A deletion that stood still marks what it finds under the id that it was asked for."""
    again = await made_again("metadata", "transactions")
    former = StreamContext(again.stale.streams, S, T, again.former_tables.stream_id)
    await former.put(STATE, StateRecord(StreamState.SEALED, DELETION))
    await former.flush()
    assert await (await again.stale.streams.open(S, T)).state() is StreamState.ACTIVE
    await again.world.close()


async def test_a_scope_is_deleted_with_a_stream_beside_tables_of_an_earlier_one() -> None:
    again = await made_again("metadata", "transactions")
    await again.world.run(again.stale.delete_scope.delete(S))
    assert again.world.segments.stream_events(S, T) == {}
    await again.world.close()


async def test_only_a_half_made_stream_is_looked_up_again() -> None:
    """A remembered stream costs one read, whatever there is."""
    again = await made_again()
    world, stale = again.world, again.stale
    await stale.streams.open(S, T)
    before = stale.switch.count
    await stale.streams.open(S, T)
    assert stale.switch.count == before + 1
    await world.close()


async def test_transactions_are_those_of_the_stream_beside_a_table_of_an_earlier_one() -> None:
    again = await made_again("transactions")
    world, stale = again.world, again.stale
    ended, kept = [await world.begin(again.fresh, S, T, label) for label in ("ended", "kept")]
    for created in (ended, kept):
        assert await world.run(stale.transactions.transaction_state(S, T, created.id)) is TransactionState.OPEN
        assert await world.run(stale.transactions.ping(S, T, created.id, 30_000)) is PingStatus.OK
    assert await world.run(stale.transactions.abort(S, T, ended.id))
    assert await world.run(stale.transactions.commit(S, T, kept.id))
    await world.clock.pass_time(5)
    assert await again.events() == ["event", "kept"] * 2
    await world.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda records, one: records.get(S, T, one),
        lambda records, one: records.active(S, T),
        lambda records, one: records.lowest_epoch(S, T),
    ],
)
async def test_no_read_of_transactions_believes_an_empty_table_of_an_earlier_stream(
    read: Callable[[TransactionStore, uuid.UUID], Awaitable[object]],
) -> None:
    again = await made_again("transactions")
    created = await again.world.begin(again.fresh, S, T, "label")
    found = await again.world.run(read(again.stale.transactions.records, created.id))
    assert found == await again.world.run(read(again.fresh.transactions.records, created.id))
    assert found not in (None, [])
    await again.world.close()


async def test_commits_and_listed_transactions_are_not_read_from_an_empty_table_of_an_earlier_stream() -> None:
    again = await made_again("transactions")
    created = await again.world.begin(again.fresh, S, T, "label")
    listed, is_all = await again.stale.transactions.records.some_active(S, T, 10)
    assert is_all and [one.state for one in listed] == [TransactionState.OPEN]
    again.stale.transactions.records.remember(again.former_tables)
    assert (await again.stale.transactions.records.commit_state(S, T)).table != again.former_tables.table
    assert await again.world.run(again.fresh.transactions.abort(S, T, created.id))
    await again.world.close()
