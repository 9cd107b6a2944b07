"""Finds the keys of a stream that some of its segments do not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pravega_common.model.segments import SegmentRange

key_gap_max: Final = 1e-9
"""Between two segments of neighbouring keys, whose ends are rounded."""


class UncoveredKeys:
    """The keys that none of some segments has, as ranges in order."""

    def __init__(self, segments: Iterable[SegmentRange]) -> None:
        self.gaps: list[tuple[float, float]] = []
        covered = 0.0
        for item in sorted(segments, key=lambda item: item.key_low):
            self._add(covered, item.key_low)
            covered = max(covered, item.key_high)
        self._add(covered, 1.0)

    def _add(self, low: float, high: float) -> None:
        if high - low > key_gap_max:
            self.gaps.append((low, high))

    def overlap(self, segment: SegmentRange) -> bool:
        """Whether a segment has some of these keys."""
        return any(min(high, segment.key_high) - max(low, segment.key_low) > key_gap_max for low, high in self.gaps)
