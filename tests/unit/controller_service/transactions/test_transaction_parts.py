"""Ids, timers, commit order, merge evidence, records and messages: the parts without a service around them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from controller_service.api.grpc.transaction_sets_api import TransactionSetsApi
from controller_service.sets.known_sinks import KnownSinks
from controller_service.sets.sink_store import RegistrationShard, SinkStore
from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, SinkRecord
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import ANY_VERSION
from controller_service.store.writer_marks import writer_bytes_max
from controller_service.transactions.commit_transactions import round_size
from controller_service.transactions.completions import Completions
from controller_service.transactions.ids import TransactionIds, id_of_counter, ids_per_reservation
from controller_service.transactions.records import (
    CommittingRecord,
    CommittingTransaction,
    CompletedTransaction,
    MergeTarget,
    RecentlyCompleted,
    completed_listed_max,
)
from controller_service.transactions.timeouts import TimedTransaction, Timers, timer_slack_max
from pravega_common import names
from pravega_common.errors import DataCorruption, InvalidArgument, Throttled
from pravega_common.model.table_limits import value_bytes_max
from pravega_common.model.transactions import TransactionState
from pravega_common.proto import transaction_sets_pb2 as pb
from tests.support.transaction_world import World

# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter", [1, 2**63 - 1, 2**63, 2**94 - 1])
def test_both_halves_of_an_id_are_non_negative(counter: int) -> None:
    high, low = names.transaction_id_bits(id_of_counter(7, counter))
    assert high >> 32 == 7 and high & 0x80000000 == 0 and low >= 0


def test_neighbouring_counters_give_different_ids() -> None:
    counters = [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64]
    assert len({id_of_counter(0, counter) for counter in counters}) == len(counters)


async def test_no_two_controllers_hand_out_one_id() -> None:
    store = InMemoryVersionedStore()
    sources = [TransactionIds(store) for _ in range(3)]
    await asyncio.gather(*(source.start() for source in sources))
    count = ids_per_reservation + 10
    ids = await asyncio.gather(*(source.next(0) for source in sources for _ in range(count)))
    assert len(set(ids)) == 3 * count


# ---- timers ----------------------------------------------------------------------------------------------------------


def test_a_moved_deadline_counts_and_a_cancelled_one_does_not() -> None:
    timers = Timers()
    first, second, third = (TimedTransaction("s", "t", uuid.UUID(int=index)) for index in range(3))
    for transaction in (first, second, third):
        timers.arm(transaction, 10.0, 1)
    timers.arm(first, 20.0, 2)
    timers.cancel(second)
    assert timers.due(9.9, 10) == []
    assert timers.due(15.0, 10) == [(third, 1)]
    assert timers.due(25.0, 10) == [(first, 2)] and len(timers) == 0
    assert timers.due(99.0, 10) == []


def test_due_transactions_are_taken_a_bounded_number_at_a_time() -> None:
    timers = Timers()
    for index in range(5):
        timers.arm(TimedTransaction("s", "t", uuid.UUID(int=index)), float(index), 0)
    assert [transaction.id.int for transaction, _ in timers.due(10.0, 3)] == [0, 1, 2]
    assert [transaction.id.int for transaction, _ in timers.due(10.0, 3)] == [3, 4]


def test_what_is_renewed_or_ends_leaves_nothing_until_its_lease_is_over() -> None:
    """A client may renew a transaction each second, or have a thousand a second: only those that are open count."""
    timers = Timers()
    one, rest = TimedTransaction("s", "t", uuid.UUID(int=0)), range(1, 5_000)
    for number in range(5_000):
        timers.arm(one, 600.0 + number, number)
    assert timers.deadlines < 2 * timer_slack_max
    for number in rest:
        other = TimedTransaction("s", "t", uuid.UUID(int=number))
        timers.arm(other, 600.0, 0)
        timers.cancel(other)
    assert timers.deadlines < 2 * timer_slack_max
    assert timers.due(5_598.0, 10) == [] and timers.due(5_599.0, 10) == [(one, 4_999)]


# ---- merges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "sources", "after"),
    [
        (100, (10, 0, 5), (110, 110, 115)),
        # Other writers got in between.
        (100, (10, 0, 5), (117, 130, 140)),
        # A repetition: everything was merged before, the target answers its present length.
        (100, (10, 0, 5), (115, 115, 115)),
        (0, (), ()),
    ],
)
def test_lengths_that_prove_a_merge(before: int, sources: tuple[int, ...], after: tuple[int, ...]) -> None:
    MergeTarget(0, before, sources).verify("s/t/0", after)


@pytest.mark.parametrize(
    ("before", "sources", "after"),
    [
        (100, (10, 5), (100, 105)),
        (100, (10, 5), (110, 110)),
        (100, (10, 5), (114, 114)),
        (100, (10, 5), (110,)),
        (100, (10,), ()),
    ],
)
def test_lengths_that_do_not(before: int, sources: tuple[int, ...], after: tuple[int, ...]) -> None:
    with pytest.raises(DataCorruption, match="s/t/0"):
        MergeTarget(0, before, sources).verify("s/t/0", after)


# ---- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [1, 199, 200, 201, 1_000, names.segments_per_stream_max])
def test_the_record_of_the_largest_round_fits_a_table(segments: int) -> None:
    """Control characters take the most bytes in a record."""
    longest, writer, count = 2**63 - 1, "\1" * writer_bytes_max, round_size(segments)
    ids = [uuid.UUID(int=index).hex for index in range(count)]
    transactions = tuple(CommittingTransaction(identifier, writer, -longest) for identifier in ids)
    targets = (MergeTarget(names.segment_number_max, longest, (longest,) * count),) * segments
    record = CommittingRecord(transactions, names.epoch_max, names.epoch_max, True, 1 << 45, targets)
    assert len(encode(record)) <= value_bytes_max


def test_recently_completed_are_bounded_and_idempotent() -> None:
    done = CompletedTransaction(TransactionState.COMMITTED, 5)
    recent = RecentlyCompleted()
    for index in range(completed_listed_max + 20):
        recent = recent.adding([(uuid.UUID(int=index), done), (uuid.UUID(int=index), done)])
    assert len(recent.entries) == completed_listed_max
    assert RecentlyCompleted.decode(recent.encode()) == recent
    assert recent.entries[-1][0].int == completed_listed_max + 19


def of(epoch: int, number: int) -> uuid.UUID:
    return names.transaction_id(epoch, 0, number)


def members(count: int, name: Callable[[int], str]) -> tuple[MemberRecord, ...]:
    return tuple(MemberRecord("scope/" + name(index), of(3, index + 1).hex, index, 10, 100) for index in range(count))


async def test_records_of_large_sets_are_packed_and_bounded() -> None:
    store = SinkStore(InMemoryVersionedStore())
    await store.start()
    large = SetRecord(1, 0, "run", members(5_000, lambda _: "stream"), 50_000, 500_000, SetRecordState.COMMITTED, 1)
    record = SinkRecord("q", "d", ("run",), 2, large, large)
    await store.write("key", record, -1)
    found = await store.read("key")
    assert found is not None and found.record == record
    [(key, listed)], token = await store.page(b"")
    assert (key, listed, token) == ("key", found, b"")

    def unlike(index: int) -> str:
        return "".join(uuid.uuid5(uuid.NAMESPACE_OID, f"{index}/{part}").hex for part in range(7))

    huge = SetRecord(1, 0, "run", members(5_000, unlike), 50_000, 500_000, SetRecordState.COMMITTED, 1)
    with pytest.raises(InvalidArgument, match="10000 transactions"):
        await store.write("key", SinkRecord("q", "d", ("run",), 2, huge, huge), found.version)


async def test_a_damaged_record_is_told_as_such() -> None:
    tables = InMemoryVersionedStore()
    store = SinkStore(tables)
    await store.start()
    for damaged in (b"", b"x\x9c", b'{"_v":1'):
        await tables.put("transactionSets", "key", damaged, ANY_VERSION)
        with pytest.raises(DataCorruption):
            await store.read("key")


def test_registrations_are_kept_once_and_never_older() -> None:
    some = members(3, lambda _: "stream")
    shard = RegistrationShard().adding(some, 50).adding(some[:1], 40)
    assert len(shard.transactions) == 3 and shard.touched_ms == 50
    with pytest.raises(Throttled):
        RegistrationShard().adding(members(5_001, lambda _: "stream"), 1)


# ---- completions -----------------------------------------------------------------------------------------------------


async def test_completions_are_told_to_all_who_wait_and_leave_nothing_behind() -> None:
    completions = Completions()
    ids = [uuid.UUID(int=index) for index in range(3)]
    with completions.expect(ids) as one, completions.expect(ids[:1]) as other:
        completions.tell(ids[:1])
        assert other.all_came.done() and not one.all_came.done()
        completions.tell(ids)
        assert one.all_came.done()
    # Told a moment before somebody asked.
    with completions.expect(ids) as late:
        assert late.all_came.done()
    with completions.expect([uuid.UUID(int=9)]) as never:
        assert not never.all_came.done()
    assert completions._waiting == {}


# ---- messages --------------------------------------------------------------------------------------------------------


async def test_the_api_says_what_the_service_says() -> None:
    world = World()
    await world.create_stream("scope", "stream")
    one = await world.instance()
    known = KnownSinks(one.sets.record_of, world.clock)
    api, context = TransactionSetsApi(one.sets, known), None
    created = await world.begin(one, "scope", "stream", "a")
    high, low = names.transaction_id_bits(created.id)
    member = pb.Member(
        scope="scope", stream="stream", transaction_high=high, transaction_low=low, partition=3, events=1, bytes=10
    )
    sink = pb.Sink(query_id="q", destination="scope/stream")

    async def ask(method: Callable[[Any, Any], Any], request: Any) -> Any:
        return await world.run(method(request, context))

    get = pb.GetTransactionSetRequest(sink=sink, batch_id=4)
    none = await ask(api.GetTransactionSet, get)
    assert (none.set.state, none.last_committed_batch_id) == (pb.TransactionSet.NONE, -1)
    registered = await ask(
        api.RegisterTransactions, pb.RegisterTransactionsRequest(sink=sink, run_id="r", batch_id=4, members=[member])
    )
    assert registered.status == pb.RegisterTransactionsResponse.REGISTERED and registered.renewed_for_ms == 600_000
    commit = pb.CommitTransactionSetRequest(sink=sink, run_id="r", batch_id=4, members=[member], events=1, bytes=10)
    committed = await ask(api.CommitTransactionSet, commit)
    assert len(known) == 1
    assert committed.status == pb.CommitTransactionSetResponse.COMMITTED and list(committed.set.members) == [member]
    await world.clock.pass_time(1)
    finished = await ask(api.GetTransactionSet, get)
    assert (finished.set.state, finished.last_committed_batch_id) == (pb.TransactionSet.FINISHED, 4)
    late = pb.Member(scope="scope", stream="stream", transaction_low=99 << 40)
    refused = await ask(
        api.CommitTransactionSet, pb.CommitTransactionSetRequest(sink=sink, run_id="r", batch_id=5, members=[late])
    )
    assert refused.status == pb.CommitTransactionSetResponse.REFUSED and "not open" in refused.detail
    assert refused.set.state == pb.TransactionSet.REFUSED
    get.batch_id = 5
    assert (await ask(api.GetTransactionSet, get)).set.state == pb.TransactionSet.REFUSED
    unopened = pb.RegisterTransactionsRequest(sink=sink, run_id="r", batch_id=5, members=[late])
    answer = await ask(api.RegisterTransactions, unopened)
    assert answer.status == pb.RegisterTransactionsResponse.TRANSACTION_NOT_OPEN
    listed = await ask(api.ListSinks, pb.ListSinksRequest())
    assert [item.sink for item in listed.sinks] == [sink] and listed.continuation == ""
    with pytest.raises(InvalidArgument, match="continuation"):
        await ask(api.ListSinks, pb.ListSinksRequest(continuation="x"))
    await world.close()
