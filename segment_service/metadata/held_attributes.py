"""Watches how many writers' attributes the segments of a container hold in memory. A state machine without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2, AttributeId, is_core
from segment_service.contracts.segment_metadata import SegmentMetadata

held_max: Final = 10_000
"""Writers' attributes of a segment that may stay in memory; some leave it beyond that."""
held_hard_max: Final = 20_000
"""Attributes of a segment beyond which no writer that is new there goes on before some left."""
held_in_container_max: Final = 200_000
"""Attributes of the segments that hold many of them, taken together; beyond that some leave the one with most."""
many_min: Final = 500
"""Attributes that are many for a segment: fewer are not counted."""
left_share: Final = 0.75
"""Share of a limit that stays in memory when some leave: a look at a segment's attributes is for a quarter of them."""


def may_be_in_tier2(segment: SegmentMetadata, attribute_id: AttributeId) -> bool:
    """Whether the attribute index of the segment counts for the attribute when memory does not have it."""
    return ATTRIBUTES_IN_TIER2 in segment.attributes and not is_core(attribute_id)


def is_missing(segment: SegmentMetadata, attribute_id: AttributeId) -> bool:
    """Whether nothing can be said of an attribute that is not in memory, before the attribute index was asked."""
    is_evicted = ATTRIBUTES_IN_TIER2 in segment.attributes
    return (is_evicted or len(segment.attributes) >= held_hard_max) and not is_core(attribute_id)


def writers_of(segment: SegmentMetadata) -> dict[AttributeId, int]:
    """The writers' attributes in memory, about in the order in which they were used last."""
    return {key: value for key, value in list(segment.attributes.items()) if not is_core(key)}


def agree(known: SegmentMetadata, record: SegmentMetadata) -> bool:
    """Whether the attributes of two states of a segment are those of one moment: of writers either may lack some, and
    which index counts is that of either, since a start goes back to the one of its checkpoint."""
    states = (known.attributes, record.attributes)
    if not all(ATTRIBUTES_IN_TIER2 in state for state in states):
        return known.attributes == record.attributes
    cores = [
        {key: value for key, value in state.items() if is_core(key)} | {ATTRIBUTES_IN_TIER2: 0} for state in states
    ]
    shared = (known.attributes.keys() & record.attributes.keys()) - {ATTRIBUTES_IN_TIER2}
    return cores[0] == cores[1] and all(known.attributes[key] == record.attributes[key] for key in shared)


class HeldAttributes:
    """Says which segments hold too many. Its cost is for segments that changed, never for an append."""

    def __init__(self) -> None:
        self.on_many: Callable[[SegmentMetadata, int], None] = lambda segment, left_max: None
        """Called with a segment that holds too many attributes, and with the number that may stay."""
        self._many: dict[int, SegmentMetadata] = {}

    def look(self, segment: SegmentMetadata) -> None:
        """Look at a segment that changed."""
        count = len(segment.attributes)
        if count > held_max:
            self.on_many(segment, int(held_max * left_share))
        if count >= many_min:
            self._many[segment.segment_id] = segment
            self._keep_budget()

    @property
    def in_many(self) -> int:
        """Attributes in memory of the segments that have many; costs as much as there are such segments, at most
        ``held_in_container_max / many_min``."""
        return sum(len(segment.attributes) for segment in self._many.values())

    def gone(self, segment_id: int) -> None:
        """The segment left memory."""
        self._many.pop(segment_id, None)

    def _keep_budget(self) -> None:
        """Each segment that is looked at here has many, so they are few."""
        many = {
            key: segment
            for key, segment in self._many.items()
            if len(segment.attributes) >= many_min and not segment.is_deleted and not segment.is_merged
        }
        self._many = many
        if sum(len(segment.attributes) for segment in many.values()) > held_in_container_max:
            most = max(many.values(), key=lambda segment: len(segment.attributes))
            self.on_many(most, int(min(len(most.attributes), held_max) * left_share))
