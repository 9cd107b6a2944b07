"""Keeps the attributes of many writers in Tier 2: brings them to memory when they are needed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from pravega_common.errors import ContainerOffline, DataCorruption, PravegaError, Throttled
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from segment_service.attribute_index.entries import decoded
from segment_service.attribute_index.eviction import AttributeLog, evict
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE, AttributeId
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.table_maps import TableMap
from segment_service.metadata import held_attributes
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.held_attributes import may_be_in_tier2

reads_max: Final = 10_000
"""Reads that are under way or wait; more are refused."""
look_ups_at_once_max: Final = 64
"""Look-ups that ask Tier 2 at the same time; others wait for their turn."""
look_ups_of_a_segment_max: Final = 4
"""Those of them that are of one segment: what is asked meanwhile gathers for the next one."""
look_up_attributes_max: Final = 1_000
"""Attributes that gather for one look-up."""
maps_max: Final = 1_000
"""Indexes that stay open; the one used least recently is forgotten first, and opened again when it is needed."""
kept_s: Final = 1.0
"""Time for which attributes stay in memory that a request waited for, however many there are: it needs them all."""
retry_delay_s: Final = 1.0
"""Pause after attributes could not be brought to Tier 2."""

Read = Mapping[AttributeId, int | PravegaError]
"""Each attribute's value, or why it could not be read."""


@dataclass(slots=True, eq=False)
class _LookUp:
    """Attributes of one segment that are read together."""

    task: asyncio.Task[Read]
    attribute_ids: list[AttributeId]
    """More are added until it begins."""


class AttributeIndex(Service):
    """``EvictedAttributes`` over one sorted map for each segment that had too many writers."""

    def __init__(
        self, metadata: ContainerMetadata, maps: Callable[[int], TableMap], log: AttributeLog, clock: Clock
    ) -> None:
        """``maps``: the map of a segment, always the same object while somebody uses it."""
        super().__init__(f"attribute-index-{metadata.container_id}")
        self.evicted_total = 0
        self.read_total = 0
        self.look_ups_total = 0
        self._metadata = metadata
        self._maps = maps
        self._log = log
        self._clock = clock
        self._used: OrderedDict[int, TableMap] = OrderedDict()
        self._reading: dict[tuple[int, AttributeId], asyncio.Task[Read]] = {}
        self._brought: dict[tuple[int, AttributeId], float] = {}
        """When attributes were brought for a request, the earliest first."""
        self._gathering: dict[int, _LookUp] = {}
        """The look-up of each segment that has not begun."""
        self._turns = asyncio.Semaphore(look_ups_at_once_max)
        self._turns_of_one: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self._evicting: dict[int, asyncio.Task[None]] = {}
        self._failing: dict[int, PravegaError] = {}

    async def on_start(self) -> None:
        self._metadata.held.on_many = self._begin_evicting

    # --- reads

    def bring(
        self,
        segment: SegmentMetadata,
        attribute_ids: Sequence[AttributeId],
        then: Callable[[PravegaError | None], None],
    ) -> None:
        def done(task: asyncio.Task[PravegaError | None]) -> None:
            is_over = task.cancelled() or task.exception() is not None
            then(ContainerOffline(f"{self.name} has stopped") if is_over else task.result())

        if not self.is_running:
            asyncio.get_running_loop().call_soon(then, ContainerOffline(f"{self.name} is not running"))
        else:
            self.spawn(self._bring(segment, attribute_ids), "bring").add_done_callback(done)

    async def get(self, segment: SegmentMetadata, attribute_id: AttributeId) -> int:
        value = segment.attributes.get(attribute_id)
        if value is not None or not may_be_in_tier2(segment, attribute_id):
            return NULL_ATTRIBUTE_VALUE if value is None else value
        if not self.is_running:
            raise ContainerOffline(f"{self.name} is not running")
        task = self._read(segment, (attribute_id,))[attribute_id]
        await asyncio.wait((task,))
        read = ContainerOffline(f"{self.name} has stopped") if task.cancelled() else task.result()[attribute_id]
        if isinstance(read, PravegaError):
            raise read
        return segment.attributes.get(attribute_id, read)

    async def _bring(self, segment: SegmentMetadata, attribute_ids: Sequence[AttributeId]) -> PravegaError | None:
        refusal = await self._make_room(segment)
        if refusal is not None:
            return refusal
        wanted = [one for one in attribute_ids if one not in segment.attributes and may_be_in_tier2(segment, one)]
        try:
            tasks = self._read(segment, wanted)
        except Throttled as error:
            return error
        for task in dict.fromkeys(tasks.values()):
            await asyncio.wait((task,))
        self._keep(segment.segment_id, attribute_ids)
        found = (task.result()[one] for one, task in tasks.items())
        return next((read for read in found if isinstance(read, PravegaError)), None)

    async def _make_room(self, segment: SegmentMetadata) -> PravegaError | None:
        """Wait until some attributes left if there are far too many; the reason if they cannot."""
        if len(segment.attributes) < held_attributes.held_hard_max:
            return None
        if segment.segment_id not in self._failing:
            self._metadata.held.look(segment)
            evicting = self._evicting.get(segment.segment_id)
            if evicting is not None:
                await asyncio.wait((evicting,))
        if len(segment.attributes) < held_attributes.held_hard_max or segment.is_deleted or segment.is_merged:
            return None
        return Throttled(
            f"{segment.name} holds {len(segment.attributes)} attributes, which cannot be brought to Tier 2 now: "
            f"{self._failing.get(segment.segment_id)}"
        )

    def _keep(self, segment_id: int, attribute_ids: Sequence[AttributeId]) -> None:
        now_s = self._clock.monotonic_s()
        for one in attribute_ids:
            self._brought.pop((segment_id, one), None)
            self._brought[segment_id, one] = now_s
        while self._brought and now_s - self._brought[first := next(iter(self._brought))] > kept_s:
            del self._brought[first]

    def _read(
        self, segment: SegmentMetadata, attribute_ids: Iterable[AttributeId]
    ) -> dict[AttributeId, asyncio.Task[Read]]:
        """The reads of these attributes; those that nobody reads yet join the next look-up. ``Throttled``: see
        ``reads_max``."""
        segment_id = segment.segment_id
        wanted = dict.fromkeys(attribute_ids)
        new = [(segment_id, one) for one in wanted if (segment_id, one) not in self._reading]
        if len(self._reading) + len(new) > reads_max:
            raise Throttled(f"{len(self._reading)} attributes are read from Tier 2; {reads_max} is the limit")
        for first in range(0, len(new), look_up_attributes_max):
            some = new[first : first + look_up_attributes_max]
            self._reading.update(dict.fromkeys(some, self._join_look_up(segment, [one for _, one in some])))
        return {one: self._reading[segment_id, one] for one in wanted}

    def _join_look_up(self, segment: SegmentMetadata, attribute_ids: list[AttributeId]) -> asyncio.Task[Read]:
        """Add to the look-up of the segment that has not begun, or make one."""
        found = self._gathering.get(segment.segment_id)
        if found is not None and len(found.attribute_ids) + len(attribute_ids) <= look_up_attributes_max:
            found.attribute_ids += attribute_ids
            return found.task
        task: asyncio.Task[Read] = self.spawn(self._read_in_turn(segment, attribute_ids), "read")
        self._gathering[segment.segment_id] = _LookUp(task, attribute_ids)
        return task

    async def _read_in_turn(self, segment: SegmentMetadata, attribute_ids: list[AttributeId]) -> Read:
        segment_id = segment.segment_id
        turns = self._turns_of_one.get(segment_id)
        if turns is None:
            turns = self._turns_of_one[segment_id] = asyncio.Semaphore(look_ups_of_a_segment_max)
        segment.users += 1
        try:
            async with turns, self._turns:
                self._gathered(segment_id, attribute_ids)
                values = await self._read_values(segment, attribute_ids)
        except PravegaError as error:
            return dict.fromkeys(attribute_ids, error)
        finally:
            segment.users -= 1
            self._gathered(segment_id, attribute_ids)
            for one in attribute_ids:
                del self._reading[segment_id, one]
        self.read_total += len(values)
        self._hold(segment, values)
        return values

    def _gathered(self, segment_id: int, attribute_ids: list[AttributeId]) -> None:
        """Let no more join the look-up."""
        gathering = self._gathering.get(segment_id)
        if gathering is not None and gathering.attribute_ids is attribute_ids:
            del self._gathering[segment_id]

    async def _read_values(self, segment: SegmentMetadata, attribute_ids: Sequence[AttributeId]) -> Read:
        """Read the index. Nothing changes an attribute there while it is not in memory."""
        if not segment.index_high_water:
            return dict.fromkeys(attribute_ids, NULL_ATTRIBUTE_VALUE)  # nothing left memory yet
        self.look_ups_total += 1
        index = self.map_of(segment)
        await index.open()
        stamp = index.stamp
        if stamp is None or stamp.high_water < segment.index_high_water:
            await self._log.check_owner()  # a later owner may have deleted the segment, and its index with it
            raise DataCorruption(
                f"{segment.name}: the index of its writers in Tier 2 is of operation "
                f"{stamp.high_water if stamp else 'none'}, the log says that it has those up to "
                f"{segment.index_high_water}: Tier 2 lost it, or came back older"
            )
        try:
            return decoded(await index.get_many(attribute_ids), attribute_ids, segment.name)
        except DataCorruption:
            return await self._read_one_by_one(segment, index, attribute_ids)

    async def _read_one_by_one(
        self, segment: SegmentMetadata, index: TableMap, attribute_ids: Sequence[AttributeId]
    ) -> Read:
        """Damage is the error of those writers that it is about, and of no others that asked with them."""
        values: dict[AttributeId, int | PravegaError] = {}
        for one in attribute_ids:
            try:
                values |= decoded(await index.get_many((one,)), (one,), segment.name)
            except DataCorruption as error:
                values[one] = error
        return values

    def _hold(self, segment: SegmentMetadata, values: Read) -> None:
        """Take them to memory; a sealed segment's are only read, and there is no end of those who may ask."""
        if segment.is_sealed or segment.is_deleted or segment.is_merged:
            return
        for attribute_id, value in values.items():
            if not isinstance(value, PravegaError) and attribute_id not in segment.attributes:
                segment.attributes[attribute_id] = segment.indexed[attribute_id] = value
        self._metadata.held.look(segment)

    def map_of(self, segment: SegmentMetadata) -> TableMap:
        """The map of the segment."""
        index = self._used.pop(segment.segment_id, None) or self._maps(segment.segment_id)
        self._used[segment.segment_id] = index
        if len(self._used) > maps_max:
            self._used.popitem(last=False)
        return index

    def is_wanted(self, segment_id: int, attribute_id: AttributeId) -> bool:
        """Whether somebody reads the attribute now, or a request waited for it just before."""
        key = (segment_id, attribute_id)
        brought_s = self._brought.get(key)
        return key in self._reading or (brought_s is not None and self._clock.monotonic_s() - brought_s <= kept_s)

    # --- eviction

    def _begin_evicting(self, segment: SegmentMetadata, left_max: int) -> None:
        if self.is_running and segment.segment_id not in self._evicting and not segment.is_sealed:
            self._evicting[segment.segment_id] = self.spawn(self._evict(segment, left_max), "evict")

    async def _evict(self, segment: SegmentMetadata, left_max: int) -> None:
        segment.users += 1
        segment_id = segment.segment_id
        try:
            self.evicted_total += await evict(segment, left_max, self.map_of(segment), self._log, self, self._clock)
        except PravegaError as error:
            self.log.info("attributes stay in memory", segment=segment.name, error=repr(error))
            self._failing[segment_id] = error
            await self._clock.sleep(retry_delay_s)
        finally:
            segment.users -= 1
            self._failing.pop(segment_id, None)
            del self._evicting[segment_id]
