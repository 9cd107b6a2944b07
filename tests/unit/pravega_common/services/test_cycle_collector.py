"""Cycles go by time, however few objects there are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest

from pravega_common.services.cycle_collector import CycleCollector, full_periods_min, period_s
from tests.support.collector_thresholds import thresholds_of_collector
from tests.support.fakes.clock import ManualClock


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def seldom() -> Iterator[None]:
    with thresholds_of_collector(1_000_000, 2, 1_000_000):
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
async def collector(clock: ManualClock) -> AsyncIterator[CycleCollector]:
    made = CycleCollector(clock)
    await made.start()
    yield made
    await made.stop()


async def test_young_cycles_go_after_the_period(clock: ManualClock) -> None:
    node = weakref.ref(Node())
    assert node() is not None
    await clock.advance(period_s)
    assert node() is None


async def test_older_ones_go_with_the_threshold_of_their_generation(clock: ManualClock) -> None:
    held = Node()
    node = weakref.ref(held)
    await clock.advance(period_s)
    del held  # it belongs to the second generation by now
    await clock.advance(period_s)
    assert node() is not None
    for _ in range(4):
        await clock.advance(period_s)
    assert node() is None


async def test_what_lived_long_goes_once_something_was_dropped(clock: ManualClock, collector: CycleCollector) -> None:
    for _ in range(2):
        held = Node()
        node = weakref.ref(held)
        gc.collect()  # it belongs to the oldest generation by now
        del held
        for _ in range(full_periods_min - 1):
            await clock.advance(period_s)
        assert node() is not None
        collector.note_dropped()
        await clock.advance(period_s)
        assert node() is None


async def test_everything_is_collected_seldom(clock: ManualClock, collector: CycleCollector) -> None:
    looked = 0

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal looked
        looked += phase == "stop" and info["generation"] == 2

    gc.callbacks.append(count)
    try:
        for _ in range(3 * full_periods_min):
            collector.note_dropped()
            await clock.advance(period_s)
    finally:
        gc.callbacks.remove(count)
    assert looked == 3
