"""Runs the contract of ``EvictedAttributes``: the attribute index over sorted maps in Tier 2, and the fake."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from pravega_common.runtime.clock import SystemClock
from segment_service.attribute_index.attribute_index import AttributeIndex
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2, AttributeId
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.held_attributes import writers_of
from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.contract.evicted_attributes_contract import EvictedAttributesContract, World
from tests.support.eventually import eventually
from tests.support.fakes.evicted_attributes import InMemoryEvictedAttributes
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.fakes.table_maps import TableMaps


def some_segment() -> SegmentMetadata:
    return SegmentMetadata(1, "scope/stream/0.#epoch.0", attributes={ATTRIBUTES_IN_TIER2: 0})


class QuietLog:
    """The log of a container that has one owner, and no operations on their way."""

    async def note_index(self, segment: SegmentMetadata, high_water: int) -> None:
        segment.attributes[ATTRIBUTES_IN_TIER2] = high_water

    async def check_owner(self) -> None:
        """Return: there is no later owner."""

    def is_attribute_staged(self, segment_id: int, attribute_id: AttributeId) -> bool:
        return False

    def settle_attributes(self, segment_id: int) -> None:
        """Nothing is on its way."""

    def settled_attributes(self, segment_id: int) -> None:
        """Nothing was on its way."""


class IndexWorld:
    """An attribute index over sorted maps in a Tier 2 that can fail."""

    def __init__(self) -> None:
        self.stored = InMemoryChunkStorage()
        self.chunks = FaultyChunkStorage(self.stored, random.Random(3), SystemClock())
        self.maps = TableMaps(self.chunks, cache_bytes=0)
        self.metadata = ContainerMetadata(0)
        self.segment = some_segment()
        self.attributes: AttributeIndex

    async def open(self) -> None:
        await self.maps.open()
        self.metadata.segments[1] = self.segment
        self.attributes = AttributeIndex(
            self.metadata, lambda segment_id: self.maps.table_map("", segment_id), QuietLog(), SystemClock()
        )
        await self.attributes.start()

    @property
    def look_ups_total(self) -> int:
        return self.attributes.look_ups_total

    async def all_leave(self) -> None:
        self.attributes._brought.clear()  # private: what a request waited for stays for a second
        self.metadata.held.on_many(self.segment, 0)
        await eventually(lambda: not writers_of(self.segment), "all are out of memory")
        await eventually(lambda: not self.attributes._evicting, "the end of the eviction")

    def set_away(self, is_away: bool) -> None:
        (self.chunks.stop if is_away else self.chunks.resume)()

    async def lose_index(self) -> None:
        for name in [name for name in self.stored.objects if "/t/" in name]:
            await self.stored.delete_all([name])
        await self.maps.open()
        self.attributes._used.clear()  # private: as after a restart


class FakeWorld:
    """The fake."""

    def __init__(self) -> None:
        self.segment = some_segment()
        self.attributes = InMemoryEvictedAttributes()

    @property
    def look_ups_total(self) -> int:
        return self.attributes.look_ups_total

    async def all_leave(self) -> None:
        self.attributes.evict(self.segment, 0)

    def set_away(self, is_away: bool) -> None:
        self.attributes.is_away = is_away

    async def lose_index(self) -> None:
        self.attributes.is_lost = True


class TestAttributeIndex(EvictedAttributesContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        made = IndexWorld()
        await made.open()
        yield made
        made.set_away(False)
        await made.attributes.stop()


class TestInMemoryEvictedAttributes(EvictedAttributesContract):
    @pytest.fixture
    async def world(self) -> World:
        return FakeWorld()
