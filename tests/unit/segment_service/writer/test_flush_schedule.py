"""The orders that tell the storage writer which segments to look at."""

from __future__ import annotations

import asyncio
import math
import random

from hypothesis import given
from hypothesis import strategies as st

from segment_service.writer.aggregators import Aggregators
from segment_service.writer.flush_schedule import FlushSchedule
from segment_service.writer.segment_aggregator import Data, Merging, SegmentAggregator
from segment_service.writer.segment_order import SegmentOrder
from tests.support.fakes.writer_source import CommittedLog, FakeWriterDataSource


@given(st.lists(st.tuples(st.integers(1, 8), st.none() | st.integers(0, 20)), max_size=60), st.integers(0, 20))
def test_an_order_is_a_sorted_dictionary(changes: list[tuple[int, int | None]], limit: int) -> None:
    order = SegmentOrder[int]()
    wanted: dict[int, int] = {}
    for segment_id, number in changes:
        order.set(segment_id, number)
        wanted.pop(segment_id, None)
        if number is not None:
            wanted[segment_id] = number
        assert order.lowest == min(wanted.values(), default=None)
    by_number = sorted((number, segment_id) for segment_id, number in wanted.items())
    assert order.between(3, limit) == [segment_id for number, segment_id in by_number if 3 <= number <= limit]
    assert list(order.take_up_to(limit)) == [segment_id for number, segment_id in by_number if number <= limit]
    assert len(order) == sum(number > limit for number in wanted.values())


def taken(schedule: FlushSchedule) -> list[int]:
    found = []
    while (segment_id := schedule.take()) is not None:
        found.append(segment_id)
    return found


def test_segments_fall_due_by_time_and_by_what_was_logged_since() -> None:
    schedule = FlushSchedule()
    schedule.plan(1, 12.0, 500, 10.0)
    schedule.plan(2, 11.0, 600, 10.0)
    schedule.plan(3, 15.0, 100, 10.0)
    schedule.plan(4, math.inf, 0, 10.0)
    schedule.plan(5, -math.inf, 0, 10.0)
    assert taken(schedule) == [5]
    schedule.advance(12.0)
    schedule.log_grew(100)
    assert taken(schedule) == [2, 1, 3]
    schedule.advance(1e9)
    schedule.log_grew(1 << 60)
    assert taken(schedule) == []


def test_a_new_plan_takes_the_place_of_the_old_one() -> None:
    schedule = FlushSchedule()
    for at_s in (11.0, -math.inf, 20.0, math.inf):
        schedule.plan(1, at_s, 100, 10.0)
    schedule.plan(2, -math.inf, 100, 10.0)
    schedule.plan(2, 20.0, None, 10.0)
    schedule.plan(3, -math.inf, 100, 10.0)
    schedule.forget(3)
    schedule.advance(19.0)
    schedule.log_grew(1 << 60)
    assert taken(schedule) == []
    schedule.advance(20.0)
    assert taken(schedule) == [2]


async def test_nobody_waits_for_the_time_of_nothing() -> None:
    schedule = FlushSchedule()
    waiting = asyncio.ensure_future(schedule.wait_timed())
    schedule.plan(1, math.inf, 0, 10.0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    schedule.plan(1, 11.0, 0, 10.0)
    await asyncio.wait_for(waiting, 5)


def test_the_longest_idle_segments_are_forgotten_unless_a_merge_needs_them() -> None:
    aggregators = Aggregators(FakeWriterDataSource(CommittedLog()), idle_max=2)
    made = [aggregators.create(segment_id, "scope/segment", is_new=True) for segment_id in range(1, 5)]
    assert list(aggregators.take_changed()) == [1, 2, 3, 4]
    aggregators.merged.add(1)
    for segment_id in (1, 2, 3):
        aggregators.rest(segment_id)
    assert aggregators.get(1) is made[0]
    made[3].append(1, 0, 10, 0.0, 0)
    aggregators.rest(2)
    aggregators.rest(4)
    assert aggregators.get(3) is None
    aggregators.stir(2)
    aggregators.rest(1)
    assert [aggregators.get(segment_id) is not None for segment_id in range(1, 5)] == [True, True, False, True]
    aggregators.drop(4)
    assert list(aggregators.take_changed()) == [4]


def test_the_first_sequence_is_the_lowest_of_all_that_waits_also_when_merges_join() -> None:
    rng = random.Random(3)
    for _ in range(200):
        target = SegmentAggregator(1, is_new=True)
        late = _random_target(target, rng)
        for waiting, source in late:
            target.join(waiting, source)
        while not target.is_idle:
            assert target.first_sequence == _lowest(target)
            if target.ended and rng.random() < 0.5:
                target.ended_first()
            elif target.oldest is not None:
                head = target.oldest
                assert isinstance(head, Data)
                target.written(head.end)
                target.settle()
        assert target.first_sequence is None


def _random_target(target: SegmentAggregator, rng: random.Random) -> list[tuple[Merging, SegmentAggregator]]:
    """Appends and merges of sources with appends of their own; those merges that can only join later are returned."""
    late = []
    sequence = length = 0
    for source_id in range(2, 2 + rng.randrange(1, 6)):
        source = SegmentAggregator(source_id, is_new=True)
        source.append(sequence := sequence + 1, 0, 10, 0.0, 0)
        target.append(sequence := sequence + 1, length, 5, 0.0, 0)
        merging = Merging(sequence := sequence + 1, 0.0, 0, source_id, length + 5, 10)
        length += 15
        source.is_busy = rng.random() < 0.5
        target.merge(merging, source)
        if source.is_busy:
            late.append((merging, source))
    return late


def _lowest(target: SegmentAggregator) -> int:
    items = [item.sequence for item in target._items]
    return min([*items, *(sequence for sequence, _ in target.ended)])
