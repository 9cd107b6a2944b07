"""Lets writers' attributes leave memory, after the index in Tier 2 has them durably."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from pravega_common.errors import SegmentNotFound, SegmentSealed
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.attribute_index.entries import encode_value
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2, NULL_ATTRIBUTE_VALUE, AttributeId
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.table_maps import TableMap
from segment_service.metadata.held_attributes import writers_of

ANNOUNCED: Final = register("attribute_index.announced_before_flush")
FLUSHED: Final = register("attribute_index.flushed_before_log")
LOGGED: Final = register("attribute_index.logged_before_eviction")
EVICTED: Final = register("attribute_index.evicted")

flush_count_max: Final = 100_000
"""Attributes that one flush takes."""
keys_per_clock_reading: Final = 64
"""Attributes between two looks at the clock: far less than a slice."""


class AttributeLog(Protocol):
    """The log of the container, as the index needs it."""

    def note_index(self, segment: SegmentMetadata, high_water: int) -> Awaitable[None]:
        """Log that the index of the segment counts, as of this high water; done when that is committed."""
        ...

    async def check_owner(self) -> None:
        """``Fenced`` if the log has a later owner."""
        ...

    def is_attribute_staged(self, segment_id: int, attribute_id: AttributeId) -> bool:
        """Whether an operation on the attribute may be on its way to the log."""
        ...

    def settle_attributes(self, segment_id: int) -> None:
        """Begin to forget what is known of operations on the segment's attributes that are on their way now."""
        ...

    def settled_attributes(self, segment_id: int) -> None:
        """An operation that was added after ``settle_attributes`` is committed: forget it."""
        ...


class Reads(Protocol):
    """The reads of the index."""

    def is_wanted(self, segment_id: int, attribute_id: AttributeId) -> bool:
        """Whether somebody reads the attribute now, or a request waited for it just before."""
        ...


async def evict(
    segment: SegmentMetadata, left_max: int, index: TableMap, log: AttributeLog, reads: Reads, clock: Clock
) -> int:
    """Bring the number of writers' attributes in memory down to ``left_max``; returns how many left.

    Durable steps: the log says that there may be an index; the index has the values; the log says as of when. Only
    then a value leaves memory, if it is still the one that was written and nothing on its way changes it. Errors as
    of the map and the log; ``SegmentSealed``, ``SegmentNotFound`` if the segment changes no more.
    """
    if ATTRIBUTES_IN_TIER2 not in segment.attributes:
        await log.note_index(segment, 0)
        failpoint(ANNOUNCED)
    slices = TimeSlices(clock, keys_per_clock_reading)
    evicted = 0
    while leaving := await _choose(segment, left_max, slices):
        await _store(segment, leaving, index, log)
        left = 0
        for attribute_id, value in leaving.items():
            left += _let_go(segment, attribute_id, value, log, reads)
            await slices.step()
        evicted += left
        failpoint(EVICTED)
        if len(leaving) < flush_count_max or not left:
            break  # those on their way stay until the next time
    return evicted


async def _choose(segment: SegmentMetadata, left_max: int, slices: TimeSlices) -> dict[AttributeId, int]:
    """Those used least recently, as far as that is known: what did not change since the last look goes first, in the
    order in which it came or was last seen to change. So an append does nothing for it."""
    held = writers_of(segment)
    count = min(len(held) - left_max, flush_count_max)
    if count <= 0:
        return {}
    idle: list[AttributeId] = []
    changed: list[AttributeId] = []
    for attribute_id, value in held.items():
        (idle if segment.looked_at.get(attribute_id) == value else changed).append(attribute_id)
        await slices.step()
    leaving = {attribute_id: held[attribute_id] for attribute_id in (idle + changed)[:count]}
    _put_last(segment, [attribute_id for attribute_id in changed if attribute_id not in leaving])
    segment.looked_at = {key: value for key, value in held.items() if key not in leaving}
    segment.indexed = {key: value for key, value in segment.indexed.items() if held.get(key) == value}
    return leaving


def _put_last(segment: SegmentMetadata, attribute_ids: Sequence[AttributeId]) -> None:
    attributes = segment.attributes
    for attribute_id in attribute_ids:
        if attribute_id in attributes:
            attributes[attribute_id] = attributes.pop(attribute_id)


async def _store(segment: SegmentMetadata, leaving: dict[AttributeId, int], index: TableMap, log: AttributeLog) -> None:
    """Make the index have these values; it has those already that came from there and were not changed."""
    changes: dict[bytes, bytes | None] = {
        attribute_id: None if value == NULL_ATTRIBUTE_VALUE else encode_value(value)
        for attribute_id, value in leaving.items()
        if segment.indexed.get(attribute_id) != value
    }
    if not changes:
        return
    async with index.writing:  # which its removal takes, too
        if segment.is_deleted or segment.is_merged:
            raise SegmentNotFound(segment.name)
        if segment.is_sealed:
            raise SegmentSealed(segment.name, offset=segment.length)
        await index.open()
        await index.flush(changes)
        stamp = index.stamp
    failpoint(FLUSHED)
    high_water = 0 if stamp is None else stamp.high_water
    check(high_water > 0 and high_water >= segment.index_high_water, "an index went back", segment=segment, stamp=stamp)
    log.settle_attributes(segment.segment_id)
    await log.note_index(segment, high_water)
    log.settled_attributes(segment.segment_id)
    segment.index_high_water = high_water
    failpoint(LOGGED)


def _let_go(segment: SegmentMetadata, attribute_id: AttributeId, value: int, log: AttributeLog, reads: Reads) -> bool:
    """Let an attribute leave memory if the index has it as it is; whether it left."""
    segment_id = segment.segment_id
    if (
        segment.attributes.get(attribute_id) != value
        or log.is_attribute_staged(segment_id, attribute_id)
        or reads.is_wanted(segment_id, attribute_id)
    ):
        return False
    del segment.attributes[attribute_id]
    segment.indexed.pop(attribute_id, None)
    return True
