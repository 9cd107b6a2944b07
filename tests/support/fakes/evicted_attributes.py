"""Keeps the writers' attributes that are not in memory, without maps and Tier 2, with the limits of the real index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pravega_common.errors import DataCorruption, PravegaError, Throttled, Unavailable
from segment_service.attribute_index.attribute_index import look_up_attributes_max, reads_max
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE, AttributeId
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata import held_attributes
from segment_service.metadata.held_attributes import may_be_in_tier2, writers_of


class InMemoryEvictedAttributes:
    """``EvictedAttributes``. ``evict`` lets attributes leave; ``is_away`` and ``is_lost`` are its Tier 2."""

    def __init__(self) -> None:
        self.is_away = False
        self.is_lost = False
        self.look_ups_total = 0
        self._left: dict[int, dict[AttributeId, int]] = {}
        self._gathering: dict[int, dict[AttributeId, None]] = {}
        self._reading = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def evict(self, segment: SegmentMetadata, left_max: int) -> None:
        """Let writers' attributes leave memory until ``left_max`` are there; those that came first leave first."""
        if self.is_away:
            raise Unavailable("Tier 2 is away")
        held = writers_of(segment)
        for attribute_id in list(held)[: max(len(held) - left_max, 0)]:
            self._left.setdefault(segment.segment_id, {})[attribute_id] = segment.attributes.pop(attribute_id)

    def bring(
        self,
        segment: SegmentMetadata,
        attribute_ids: Sequence[AttributeId],
        then: Callable[[PravegaError | None], None],
    ) -> None:
        async def bring() -> None:
            try:
                self._make_room(segment)
                missing = [one for one in dict.fromkeys(attribute_ids) if self._is_missing(segment, one)]
                found = await self._look_up(segment, missing)
            except PravegaError as error:
                then(error)
                return
            if not segment.is_sealed:
                for one, value in found.items():
                    segment.attributes.setdefault(one, value)
            then(None)

        task = asyncio.ensure_future(bring())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def get(self, segment: SegmentMetadata, attribute_id: AttributeId) -> int:
        if not self._is_missing(segment, attribute_id):
            return segment.attributes.get(attribute_id, NULL_ATTRIBUTE_VALUE)
        found = await self._look_up(segment, [attribute_id])
        value = segment.attributes.get(attribute_id, found[attribute_id])
        if not segment.is_sealed:
            segment.attributes[attribute_id] = value
        return value

    def _is_missing(self, segment: SegmentMetadata, attribute_id: AttributeId) -> bool:
        return attribute_id not in segment.attributes and may_be_in_tier2(segment, attribute_id)

    def _make_room(self, segment: SegmentMetadata) -> None:
        limit = held_attributes.held_hard_max
        if len(segment.attributes) < limit:
            return
        try:
            self.evict(segment, int(held_attributes.held_max * held_attributes.left_share))
        except Unavailable as error:
            raise Throttled(f"{segment.name} holds {len(segment.attributes)} attributes: {error}") from error

    async def _look_up(self, segment: SegmentMetadata, attribute_ids: Sequence[AttributeId]) -> dict[AttributeId, int]:
        if not attribute_ids:
            return {}
        if self._reading + len(attribute_ids) > reads_max:
            raise Throttled(f"{self._reading} attributes are read; {reads_max} is the limit")
        self._reading += len(attribute_ids)
        try:
            gathering = self._gathering.setdefault(segment.segment_id, {})
            gathering |= dict.fromkeys(attribute_ids)
            await asyncio.sleep(0)  # those that ask in the same turn of the loop share the look-up
            if self._gathering.get(segment.segment_id) is gathering:
                del self._gathering[segment.segment_id]
                self.look_ups_total += -(-len(gathering) // look_up_attributes_max)
            await asyncio.sleep(0)
        finally:
            self._reading -= len(attribute_ids)
        if self.is_away:
            raise Unavailable("Tier 2 is away")
        if self.is_lost:
            raise DataCorruption(f"{segment.name}: Tier 2 lost the index of its writers")
        left = self._left.get(segment.segment_id, {})
        return {one: left.get(one, NULL_ATTRIBUTE_VALUE) for one in attribute_ids}
