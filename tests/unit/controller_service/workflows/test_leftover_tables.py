"""Empty tables of a deleted stream stay, as behind a creation that died; the next stream of the name takes no harm.

One controller remembers the deleted stream: it has seen neither its deletion nor the creation of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from controller_service.store.records import DELETION, STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from pravega_common.errors import StreamNotSealed
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
    former_id: str

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
    await world.run(stale.transactions.records.tables(S, T))
    await world.run(fresh.seal.seal("seal", S, T))
    await world.run(fresh.delete.delete("delete", S, T))
    tables = {"metadata": deleted.metadata_table, "transactions": deleted.transactions_table}
    for kind in left:
        await world.store.create_table(tables[kind])
    assert await world.run(fresh.create.create(S, T, TWO))
    epoch = await (await fresh.streams.open(S, T)).current_epoch()
    for name in epoch.names(S, T):
        world.segments.write(name, "event")
    return MadeAgain(world, fresh, stale, deleted.stream_id)


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
    former = StreamContext(again.stale.streams, S, T, again.former_id)
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
