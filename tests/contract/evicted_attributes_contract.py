"""Holds ``EvictedAttributes`` to its contract: inherit it, and provide ``world``, with a segment and its Tier 2."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import pytest

from pravega_common.errors import DataCorruption, PravegaError, Throttled, Unavailable
from segment_service.attribute_index.attribute_index import look_up_attributes_max, reads_max
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
)
from segment_service.contracts.evicted_attributes import EvictedAttributes
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata import held_attributes
from segment_service.metadata.held_attributes import writers_of
from tests.support.event_writers import hold_few, writer


class World(Protocol):
    """An implementation, a segment whose attributes may leave memory, and what befalls its Tier 2."""

    segment: SegmentMetadata

    @property
    def attributes(self) -> EvictedAttributes:
        """The implementation."""
        ...

    @property
    def look_ups_total(self) -> int:
        """Look-ups in Tier 2 so far."""
        ...

    async def all_leave(self) -> None:
        """Let all attributes of writers leave memory."""
        ...

    def set_away(self, is_away: bool) -> None:
        """Let Tier 2 not answer, or answer again."""
        ...

    async def lose_index(self) -> None:
        """Let Tier 2 lose what it has of the segment's attributes."""
        ...


async def brought(world: World, numbers: Sequence[int]) -> PravegaError | None:
    """The answer to a request for these writers' attributes."""
    done: asyncio.Future[PravegaError | None] = asyncio.get_running_loop().create_future()
    world.attributes.bring(world.segment, [writer(number) for number in numbers], done.set_result)
    assert not done.done(), "answered in the same turn of the loop"
    async with asyncio.timeout(30):
        return await done


class EvictedAttributesContract:
    """The tests. Writer ``n`` has the value ``n + 1``; all are in Tier 2."""

    @pytest.fixture
    async def world(self) -> World:
        raise NotImplementedError

    @pytest.fixture
    async def evicted(self, world: World) -> World:
        await self._write(world, range(50))
        return world

    async def _write(self, world: World, numbers: Sequence[int], more: int = 1) -> None:
        world.segment.attributes |= {writer(number): number + more for number in numbers}
        await world.all_leave()
        assert not writers_of(world.segment)

    async def test_what_left_is_brought_to_memory(self, evicted: World) -> None:
        assert await brought(evicted, [3, 7]) is None
        assert writers_of(evicted.segment) == {writer(3): 4, writer(7): 8}

    async def test_what_is_absent_is_known_to_be_absent(self, evicted: World) -> None:
        assert await brought(evicted, [3, 99]) is None
        assert writers_of(evicted.segment) == {writer(3): 4, writer(99): NULL_ATTRIBUTE_VALUE}
        assert await evicted.attributes.get(evicted.segment, writer(98)) == NULL_ATTRIBUTE_VALUE

    async def test_a_value_that_is_asked_for_is_the_last_one(self, evicted: World) -> None:
        assert await evicted.attributes.get(evicted.segment, writer(3)) == 4
        evicted.segment.attributes[writer(3)] = 5
        assert await evicted.attributes.get(evicted.segment, writer(3)) == 5
        await evicted.all_leave()
        assert await evicted.attributes.get(evicted.segment, writer(3)) == 5

    async def test_a_removed_attribute_does_not_come_back(self, evicted: World) -> None:
        assert await brought(evicted, [3]) is None
        evicted.segment.attributes[writer(3)] = NULL_ATTRIBUTE_VALUE
        await evicted.all_leave()
        assert await evicted.attributes.get(evicted.segment, writer(3)) == NULL_ATTRIBUTE_VALUE

    async def test_what_changed_meanwhile_is_not_overwritten(self, evicted: World) -> None:
        """Bringing twice, and bringing what is in memory, change nothing."""
        assert await brought(evicted, [3]) is None
        evicted.segment.attributes[writer(3)] = 100
        assert await brought(evicted, [3, 4]) is None
        assert writers_of(evicted.segment) == {writer(3): 100, writer(4): 5}

    async def test_core_attributes_are_never_looked_up(self, evicted: World) -> None:
        evicted.segment.attributes[EVENT_COUNT] = 17
        before = evicted.look_ups_total
        assert await evicted.attributes.get(evicted.segment, EVENT_COUNT) == 17
        assert await evicted.attributes.get(evicted.segment, CREATION_TIME) == NULL_ATTRIBUTE_VALUE
        assert evicted.look_ups_total == before

    async def test_reads_of_one_attribute_at_the_same_time_are_one(self, evicted: World) -> None:
        before = evicted.look_ups_total
        get = evicted.attributes.get
        assert await asyncio.gather(*(get(evicted.segment, writer(3)) for _ in range(20))) == [4] * 20
        assert evicted.look_ups_total == before + 1

    async def test_what_is_asked_together_is_one_look_up(self, evicted: World) -> None:
        before = evicted.look_ups_total
        get = evicted.attributes.get
        values = await asyncio.gather(*(get(evicted.segment, writer(number)) for number in range(20)))
        assert values == [number + 1 for number in range(20)]
        assert evicted.look_ups_total == before + 1
        answers = await asyncio.gather(*(brought(evicted, [number, number + 1]) for number in range(20, 49)))
        assert answers == [None] * 29
        assert evicted.look_ups_total == before + 2

    async def test_a_look_up_is_bounded(self, world: World) -> None:
        count = 2 * look_up_attributes_max + 1
        await self._write(world, range(count))
        before = world.look_ups_total
        assert await brought(world, range(count)) is None
        assert writers_of(world.segment) == {writer(number): number + 1 for number in range(count)}
        assert world.look_ups_total == before + 3

    async def test_more_reads_than_may_wait_are_refused(self, evicted: World) -> None:
        before = evicted.look_ups_total
        asked = asyncio.gather(*(brought(evicted, [number]) for number in range(reads_max + 5)))
        answers = await asked
        assert answers[:reads_max] == [None] * reads_max
        assert all(isinstance(one, Throttled) for one in answers[reads_max:]) and len(answers) == reads_max + 5
        assert evicted.look_ups_total <= before + reads_max // look_up_attributes_max
        assert await brought(evicted, [reads_max + 1]) is None

    async def test_a_sealed_segment_is_read_and_nothing_is_kept(self, evicted: World) -> None:
        evicted.segment.is_sealed = True
        assert await evicted.attributes.get(evicted.segment, writer(3)) == 4
        assert not writers_of(evicted.segment)

    async def test_a_tier_2_that_is_away_is_said_to_all_who_asked(self, evicted: World) -> None:
        evicted.set_away(True)
        answers = await asyncio.gather(*(brought(evicted, [number]) for number in range(3)))
        assert [type(one) for one in answers] == [Unavailable] * 3
        with pytest.raises(Unavailable):
            await evicted.attributes.get(evicted.segment, writer(3))
        assert not writers_of(evicted.segment)
        evicted.set_away(False)
        assert await evicted.attributes.get(evicted.segment, writer(3)) == 4

    async def test_an_index_that_was_lost_is_no_answer(self, evicted: World) -> None:
        await evicted.lose_index()
        assert isinstance(await brought(evicted, [3]), DataCorruption)
        with pytest.raises(DataCorruption):
            await evicted.attributes.get(evicted.segment, writer(3))

    async def test_a_segment_with_far_too_many_makes_room_first(
        self, evicted: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hold_few(monkeypatch, 20, held_hard_max=40, many_min=5)
        evicted.segment.attributes |= {writer(number): number + 1 for number in range(100, 150)}
        assert await brought(evicted, [3]) is None
        assert len(writers_of(evicted.segment)) <= 20 and writers_of(evicted.segment)[writer(3)] == 4
        assert await evicted.attributes.get(evicted.segment, writer(100)) == 101

    async def test_one_that_cannot_make_room_is_refused(self, evicted: World, monkeypatch: pytest.MonkeyPatch) -> None:
        hold_few(monkeypatch, 20, held_hard_max=40, many_min=5)
        evicted.segment.attributes |= {writer(number): number + 1 for number in range(100, 150)}
        evicted.set_away(True)
        assert isinstance(await brought(evicted, [3]), Throttled)
        assert len(writers_of(evicted.segment)) == 50 > held_attributes.held_hard_max
