"""Defines the scaling policy of a stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

scaling_number_max: Final = 2**31 - 1
"""The largest target rate, scale factor and segment count that the API's messages hold."""
scale_factor_min: Final = 2
"""The least number of segments that a hot one is split into; policies may be stored with less, and act as this."""


class ScaleType(enum.IntEnum):
    """The unit of a scaling policy's target rate. The values are stored and are part of ``CreateSegment``."""

    FIXED = 0
    KILOBYTES_PER_SECOND = 1
    """Units of 1,024 bytes."""
    EVENTS_PER_SECOND = 2


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """The rule by which a stream's segments are split and merged. Field names and order are a stored format."""

    scale_type: ScaleType = ScaleType.FIXED
    target_rate: int = 0
    """The rate of one segment, in the unit of ``scale_type``; 0 for a fixed number of segments."""
    scale_factor: int = 0
    """How many segments a hot one is split into; 0 for a fixed number of segments."""
    min_segments: int = 1

    @classmethod
    def fixed(cls, segments: int) -> ScalingPolicy:
        """A policy that never scales."""
        return cls(min_segments=segments)
