"""Ends of transactions: several tables a span, spans that are dropped, and spans that a former version began."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT
from controller_service.transactions.completed_store import (
    COMPLETED_BATCHES_KEY,
    COMPLETED_BATCHES_TABLE,
    CompletedStore,
    completed_batch_ms,
    completed_shards,
)
from controller_service.transactions.records import CompletedBatches, CompletedTransaction, RecentlyCompleted
from pravega_common.errors import DataCorruption, Unavailable, VersionConflict
from pravega_common.model.transactions import TransactionState
from tests.support.transaction_world import Crashed, VirtualClock

COMMITTED = CompletedTransaction(TransactionState.COMMITTED, 5)
span_s = completed_batch_ms / 1000


@pytest.fixture
def tables() -> InMemoryVersionedStore:
    return InMemoryVersionedStore()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def ends(tables: InMemoryVersionedStore, clock: VirtualClock) -> CompletedStore:
    made = CompletedStore(tables, clock)
    await made.create_table()
    return made


def span_tables(tables: InMemoryVersionedStore) -> set[str]:
    return {name for name in tables._tables if name.startswith("completedTransactionsBatch-")}


async def test_streams_lie_in_several_tables(ends: CompletedStore, tables: InMemoryVersionedStore) -> None:
    ids = {f"stream-{number}": uuid.UUID(int=number) for number in range(200)}
    for stream_id, identifier in ids.items():
        await ends.add(stream_id, [identifier], COMMITTED)
    used = [name for name in span_tables(tables) if (await tables.scan(name)).entries]
    assert len(used) == len(span_tables(tables)) == completed_shards
    for stream_id, identifier in ids.items():
        assert await ends.find(stream_id, identifier) == COMMITTED
        assert await ends.newest(stream_id) == [(identifier, TransactionState.COMMITTED)]
    assert await ends.find("stream-0", uuid.UUID(int=1)) is None


async def test_spans_end_with_all_their_tables(
    ends: CompletedStore, tables: InMemoryVersionedStore, clock: VirtualClock
) -> None:
    for number in range(4):
        await ends.add("s", [uuid.UUID(int=number)], COMMITTED)
        await clock.pass_time(span_s)
    kept = [number for number in range(4) if await ends.find("s", uuid.UUID(int=number)) is not None]
    assert kept == [2, 3] and len(span_tables(tables)) == 2 * completed_shards


class FailingTables(InMemoryVersionedStore):
    """Fails at the deletion of tables with these characters in their names."""

    kept = ""
    error: BaseException = Unavailable("the container moves")

    async def delete_table(self, table: str) -> None:
        if self.kept and self.kept in table:
            raise self.error
        await super().delete_table(table)


@pytest.fixture
def failing() -> FailingTables:
    return FailingTables()


async def add_each_day(ends: CompletedStore, clock: VirtualClock, days: int) -> None:
    for _ in range(days):
        await ends.add("s", [uuid.UUID(int=clock.wall_ms())], COMMITTED)
        await clock.pass_time(span_s)


async def test_tables_that_cannot_be_deleted_hold_up_nothing_and_go_later(
    failing: FailingTables, clock: VirtualClock
) -> None:
    ends = CompletedStore(failing, clock)
    await ends.create_table()
    first, first_day = uuid.UUID(int=clock.wall_ms()), clock.wall_ms() // completed_batch_ms
    failing.kept = f"{first_day}.3"
    await add_each_day(ends, clock, 5)
    assert span_tables(failing) == {
        f"completedTransactionsBatch-{first_day}.3",
        *(
            f"completedTransactionsBatch-{first_day + day}.{shard}"
            for day in (3, 4)
            for shard in range(completed_shards)
        ),
    }
    assert await ends.find("s", first) is None and len(await ends.newest("s")) == 2
    failing.kept = ""
    await add_each_day(ends, clock, 1)
    assert len(span_tables(failing)) == 2 * completed_shards


async def test_a_clock_that_is_ahead_drops_no_span(tables: InMemoryVersionedStore, clock: VirtualClock) -> None:
    """It would begin one of a day to come, which right clocks wrote to until then."""
    ends = CompletedStore(tables, clock)
    await ends.create_table()
    first = uuid.UUID(int=1)
    await ends.add("s", [first], COMMITTED)
    before, clock.agrees = span_tables(tables), False
    await clock.pass_time(3 * span_s)
    await ends.add("s", [uuid.UUID(int=2)], COMMITTED)
    assert span_tables(tables) == before and await ends.find("s", first) == COMMITTED
    clock.agrees = True
    await add_each_day(ends, clock, 2)
    assert before.isdisjoint(span_tables(tables)) and await ends.find("s", first) is None


async def test_tables_that_a_controller_did_not_come_to_are_deleted_by_another(
    failing: FailingTables, clock: VirtualClock
) -> None:
    ends, others = CompletedStore(failing, clock), CompletedStore(failing, clock)
    await ends.create_table()
    failing.kept, failing.error = f"{clock.wall_ms() // completed_batch_ms}.3", Crashed()
    with pytest.raises(Crashed):
        await add_each_day(ends, clock, 3)
    failing.kept = ""
    await add_each_day(others, clock, 1)
    assert len(span_tables(failing)) == 2 * completed_shards


async def test_two_controllers_drop_a_span_at_once(failing: FailingTables, clock: VirtualClock) -> None:
    ends, others = CompletedStore(failing, clock), CompletedStore(failing, clock)
    await ends.create_table()
    await add_each_day(ends, clock, 2)
    delete_table, begun, met = failing.delete_table, asyncio.Event(), asyncio.Barrier(2 * completed_shards)

    async def delete(table: str) -> None:
        begun.set()
        await met.wait()
        await delete_table(table)

    failing.delete_table = delete  # type: ignore[method-assign]
    adding = asyncio.ensure_future(ends.add("s", [uuid.UUID(int=1)], COMMITTED))
    await begun.wait()
    outcomes = await asyncio.gather(adding, others.add("s", [uuid.UUID(int=2)], COMMITTED), return_exceptions=True)
    assert [type(error) for error in outcomes if error is not None] == [VersionConflict]
    await others.add("s", [uuid.UUID(int=2)], COMMITTED)
    assert len(span_tables(failing)) == 2 * completed_shards


async def test_a_span_of_a_former_version_keeps_its_table(
    ends: CompletedStore, tables: InMemoryVersionedStore, clock: VirtualClock
) -> None:
    today = clock.wall_ms() // completed_batch_ms
    old_table, old = f"completedTransactionsBatch-{today}", uuid.UUID(int=1)
    await tables.create_table(old_table)
    stored = f'{{"_v":1,"numbers":[{today}]}}'.encode()
    await tables.put(COMPLETED_BATCHES_TABLE, COMPLETED_BATCHES_KEY, stored, ABSENT)
    await tables.put(old_table, f"s/{old.hex}", encode(COMMITTED), ABSENT)
    await tables.put(old_table, "s/recent", RecentlyCompleted(((old, COMMITTED),)).encode(), ABSENT)
    await ends.add("s", [uuid.UUID(int=2)], COMMITTED)
    assert span_tables(tables) == {old_table}
    await clock.pass_time(span_s)
    await ends.add("s", [uuid.UUID(int=3)], COMMITTED)
    assert len(span_tables(tables)) == 1 + completed_shards
    assert [identifier.int for identifier, _ in await ends.newest("s")] == [3, 2, 1]
    await clock.pass_time(span_s)
    await ends.add("s", [uuid.UUID(int=4)], COMMITTED)
    assert old_table not in span_tables(tables) and await ends.find("s", old) is None


def test_the_record_stays_as_it_is() -> None:
    assert encode(CompletedBatches((7, 8), 8)) == b'{"_v":2,"numbers":[7,8],"sharded_from":8}'
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(CompletedBatches, b'{"_v":3,"numbers":[7]}')
