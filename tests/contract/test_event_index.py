"""Runs the contract of the event index: the fake segment store, and a container with and without Tier 2."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from functools import partial

import pytest

from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.segment_store import SegmentStore
from tests.contract.event_index_contract import SEGMENT, EventIndexContract, Writer
from tests.support.containers import ContainerKit
from tests.support.event_index import settled
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore


class TestInMemorySegmentStore(EventIndexContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[SegmentStore]:
        yield InMemorySegmentStore()


class TestContainer(EventIndexContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[SegmentStore]:
        container = await ContainerKit().open()
        yield container
        await container.stop()


class TestContainerWithTier2(EventIndexContract):
    """Bytes leave the cache soon, index segments too."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[SegmentStore]:
        kit = ContainerKit(cache_bytes=2 * 1024 * 1024, unflushed_bytes_max=1024 * 1024)
        kit.write_to_tier2()
        container = await kit.open()
        yield container
        await container.stop()


def has_noted(container: SegmentContainer, appends: int) -> bool:
    return container.event_index.appends_total >= appends


async def test_records_are_written_together_and_late() -> None:
    """However often a segment grows, its index gets one append per delay."""
    clock = ManualClock()
    container = await ContainerKit(clock=clock).open()
    await container.create_segment(SEGMENT)
    writer = Writer(container)
    for _ in range(3):
        for _ in range(50):
            await writer.append(30_000, 3)
        total = container.event_index.appends_total + 1
        await clock.advance(0.1)
        await eventually(partial(has_noted, container, total))
    records = await settled(container, SEGMENT)
    writer.truth.check(records)
    assert container.event_index.appends_total == 3
    assert container.event_index.records_total == len(records) == 3 * 17
    assert all(later.length - earlier.length >= 60_000 for earlier, later in itertools.pairwise(records))
    await container.stop()
