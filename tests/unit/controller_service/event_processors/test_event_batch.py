"""Follows batches of events to their ends, in any order in which handlers may finish."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.event_processors.event_batch import BatchedEvent, EventBatch
from controller_service.event_processors.event_processor import Concurrency
from pravega_common.invariants import InvariantViolation

EVENT_BYTES = 10


def events(*keys: str, merging: bool = False) -> list[BatchedEvent[str]]:
    """An event a key, one behind the other; with ``merging`` those of one key are one piece of work."""
    return [
        BatchedEvent(number * EVENT_BYTES, memoryview(b""), key, key, key if merging else None)
        for number, key in enumerate(keys)
    ]


def batch_of(found: list[BatchedEvent[str]], concurrency: Concurrency) -> EventBatch[str]:
    return EventBatch(found, concurrency, 0, len(found) * EVENT_BYTES)


def test_events_of_different_keys_start_together_and_those_of_one_in_turn() -> None:
    first, second, third = events("a", "b", "a")
    batch = batch_of([first, second, third], Concurrency.PER_KEY)
    assert batch.startable() == [first, second]
    assert batch.startable() == []
    batch.finish(first)
    assert batch.startable() == [third]


def test_serial_events_start_one_by_one() -> None:
    found = events("a", "b", "c")
    batch = batch_of(found, Concurrency.SERIAL)
    for event in found:
        assert batch.startable() == [event]
        batch.finish(event)
    assert batch.is_done


def test_concurrent_events_all_start() -> None:
    found = events("a", "a", "b")
    assert batch_of(found, Concurrency.CONCURRENT).startable() == found


def test_the_last_of_several_events_stands_for_all() -> None:
    first, other, last = events("a", "b", "a", merging=True)
    batch = batch_of([first, other, last], Concurrency.PER_KEY)
    assert batch.merged_count == 1
    assert batch.startable() == [other, last]
    batch.finish(other)
    assert batch.handled_until == first.offset, "the first one is not handled before the one that stands for it"
    batch.finish(last)
    assert batch.handled_until == 30


def test_an_event_that_did_not_start_cannot_finish() -> None:
    first, second = events("a", "a")
    batch = batch_of([first, second], Concurrency.PER_KEY)
    with pytest.raises(InvariantViolation):
        batch.finish(second)


def test_a_batch_without_events_is_done() -> None:
    batch = EventBatch[str]([], Concurrency.SERIAL, 5, 40)
    assert batch.is_done
    assert batch.handled_until == 40


@given(
    keys=st.lists(st.sampled_from("abc"), max_size=30),
    merging=st.booleans(),
    concurrency=st.sampled_from(Concurrency),
    choices=st.randoms(use_true_random=False),
)
def test_every_event_ends_once_and_in_the_order_of_its_key(
    keys: list[str], merging: bool, concurrency: Concurrency, choices: random.Random
) -> None:
    found = events(*keys, merging=merging)
    batch = batch_of(found, concurrency)
    running: list[BatchedEvent[str]] = []
    finished: list[BatchedEvent[str]] = []
    while True:
        running += batch.startable()
        if concurrency is Concurrency.SERIAL:
            assert len(running) <= 1
        if concurrency is Concurrency.PER_KEY:
            assert len({event.key for event in running}) == len(running)
        if not running:
            break
        event = running.pop(choices.randrange(len(running)))
        batch.finish(event)
        finished.append(event)
        for other in found:
            if other.offset >= batch.handled_until:
                continue
            stood_for = merging and any(done.key == other.key for done in finished)
            assert other in finished or stood_for
    assert batch.is_done
    assert batch.handled_until == len(found) * EVENT_BYTES
    if merging:
        assert sorted(event.key for event in finished) == sorted(set(keys))
    else:
        assert sorted(event.offset for event in finished) == [event.offset for event in found]
    if concurrency is not Concurrency.CONCURRENT:
        for key in set(keys):
            mine = [event.offset for event in finished if event.key == key]
            assert mine == sorted(mine)
