"""Chooses the segment of a stream for the position of a routing key (docs/wire-protocol.md 6.3)."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from pravega_common.errors import InvalidArgument
from pravega_common.key_range import covers_whole
from pravega_common.model.segments import SegmentRange


class SegmentRouter:
    """The segments of a stream by key: a position belongs to the one with the smallest upper edge at or above it."""

    def __init__(self, segments: Iterable[SegmentRange]) -> None:
        """``InvalidArgument`` unless the segments cover the key space without overlaps."""
        self.segments: Final = tuple(sorted(segments, key=lambda item: item.key_high))
        if not covers_whole(item.key_range for item in self.segments):
            raise InvalidArgument(f"{len(self.segments)} segment ranges do not cover the key space [0, 1)")
        self._highs = [item.key_high for item in self.segments]
        # The last edge may fall short of 1 by a rounding error; no position may fall past it.
        self._highs[-1] = 1.0
        self._high_column = np.array(self._highs)

    def segment_of(self, position: float) -> SegmentRange:
        """The segment for a position in [0, 1)."""
        return self.segments[bisect.bisect_left(self._highs, position)]

    def indexes_of(self, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The index into ``segments`` for every position in [0, 1)."""
        return np.searchsorted(self._high_column, positions, side="left").astype(np.int64)
