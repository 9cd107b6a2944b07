"""Writes a transaction to a store in memory over a real socket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import StreamNotFound
from pravega_common.model.segments import SegmentRange
from pravega_common.model.transactions import NewTransaction, TransactionState
from pravega_common.names import transaction_segment_name
from pravega_common.wire import commands as c
from pravega_streams.errors import TransactionFailed
from pravega_streams.event import transaction as transaction_module
from pravega_streams.event.transaction import Transaction
from tests.support.fakes.wire_store import FakeSegment, FakeStore

COUNT = 16


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    yield made
    made.close()


def test_a_flush_takes_as_long_for_many_segments_as_for_one(store: FakeStore) -> None:
    """Each waits for the disk of its store: not one after the other."""
    ranges = tuple(SegmentRange("s", "t", number, number / COUNT, (number + 1) / COUNT) for number in range(COUNT))
    begun = NewTransaction(uuid.UUID(int=7), ranges)
    names = [transaction_segment_name(item.name, begun.transaction_id) for item in ranges]
    store.segments |= {name: FakeSegment() for name in names}
    asked: list[type[c.Command]] = []

    def note(command: c.Command) -> None:
        if isinstance(command, c.SetupAppend | c.AppendBlockEnd):
            asked.append(type(command))

    store.before = note
    client: Any = SimpleNamespace(segments=SimpleNamespace(endpoints=store))
    transaction = Transaction(client, "s", "t", begun, 30_000)
    for number in range(20 * COUNT):
        transaction.write(b"event", f"key-{number}")
    transaction.flush()
    assert all(store.segments[name].data for name in names)
    # Every set-up is asked for before the first answer is waited for.
    assert asked == [c.SetupAppend] * COUNT + [c.AppendBlockEnd] * COUNT
    asked.clear()
    for number in range(20 * COUNT):
        transaction.write(b"event", f"key-{number}")
    transaction.flush()
    assert asked == [c.AppendBlockEnd] * COUNT


@pytest.mark.parametrize("decision", ["commit", "abort"])
def test_a_decided_transaction_takes_no_event_that_nobody_would_flush(store: FakeStore, decision: str) -> None:
    begun = NewTransaction(uuid.UUID(int=7), (SegmentRange("s", "t", 0, 0.0, 1.0),))
    store.segments[transaction_segment_name("s/t/0.#epoch.0", begun.transaction_id)] = FakeSegment()
    controller = SimpleNamespace(
        commit_transaction=lambda *_: None,
        abort_transaction=lambda *_: None,
        transaction_state=lambda *_: TransactionState.COMMITTED,
    )
    client: Any = SimpleNamespace(controller=controller, segments=SimpleNamespace(endpoints=store))
    transaction = Transaction(client, "s", "t", begun, 30_000)
    transaction.write(b"event")
    getattr(transaction, decision)()
    with pytest.raises(TransactionFailed, match="takes no more events"):
        transaction.write(b"late")


def test_a_commit_does_not_wait_for_a_stream_that_is_deleted(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the decision and the next look: nobody knows the transaction any more, so it never becomes readable."""
    begun = NewTransaction(uuid.UUID(int=7), (SegmentRange("s", "t", 0, 0.0, 1.0),))
    states = iter([TransactionState.COMMITTING, TransactionState.UNKNOWN])
    controller = SimpleNamespace(
        commit_transaction=lambda *_: None, transaction_state=lambda *_: next(states, TransactionState.UNKNOWN)
    )
    client: Any = SimpleNamespace(controller=controller, segments=SimpleNamespace(endpoints=store))
    monkeypatch.setattr(transaction_module, "commit_time_max_s", 0.3)
    with pytest.raises(StreamNotFound, match="is committed, and stream s/t was deleted since"):
        Transaction(client, "s", "t", begun, 30_000).commit()


def test_threads_share_a_transaction(store: FakeStore) -> None:
    """Each event is there once, those of a thread in order."""
    threads, count = 6, 300
    item = SegmentRange("s", "t", 0, 0.0, 1.0)
    begun = NewTransaction(uuid.UUID(int=7), (item,))
    name = transaction_segment_name(item.name, begun.transaction_id)
    store.segments[name] = FakeSegment()
    client: Any = SimpleNamespace(segments=SimpleNamespace(endpoints=store))
    transaction = Transaction(client, "s", "t", begun, 30_000)

    def write(thread: int) -> None:
        for number in range(count):
            transaction.write(b"%d/%d/" % (thread, number) + bytes(2_000))
            if number % 50 == thread:
                transaction.flush()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))
    transaction.flush()
    found = [tuple(int(part) for part in event.split(b"/")[:2]) for event in store.segments[name].events()]
    assert sorted(found) == [(thread, number) for thread in range(threads) for number in range(count)]
    assert sorted(found, key=lambda pair: pair[0]) == sorted(found)
