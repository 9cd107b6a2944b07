"""Defines the segments of a stream as the API and the segment stores describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pravega_common.key_range import KeyRange
from pravega_common.names import segment_name

SegmentOffsets = Mapping[int, int]
"""Offsets in bytes by segment id: a stream cut without the name of its stream. An empty one is unbounded."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment of a stream and its keys: positions in [key_low, key_high) of [0, 1)."""

    scope: str
    stream: str
    segment_id: int
    key_low: float
    key_high: float

    @property
    def name(self) -> str:
        """The qualified name, ``scope/stream/number.#epoch.epoch``."""
        return segment_name(self.scope, self.stream, self.segment_id)

    @property
    def key_range(self) -> KeyRange:
        """Its keys; an upper edge that is past 1 by a rounding error is 1."""
        return KeyRange(self.key_low, min(self.key_high, 1.0))


@dataclass(frozen=True, slots=True)
class Successor:
    """A segment that follows a sealed one; it may be read once all of ``predecessors`` are."""

    segment: SegmentRange
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment's extent as its store knows it. Offsets are in bytes from the beginning of the segment's life."""

    name: str
    start_offset: int
    length: int
    is_sealed: bool
    last_modified_ms: int = 0
    """The time of the last change by the store's clock; 0 if it was not asked for."""
