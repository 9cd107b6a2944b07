"""Defines the configuration of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScalingPolicy

tags_max: Final = 127
tag_chars_max: Final = 255
"""What a controller takes, of a stream and of a tag: docs/controller-api.md 10."""


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """The settings of a stream. Field names and order are a stored format."""

    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    retention: RetentionPolicy | None = None
    """None: nothing is removed."""
    tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout_ms: int = 0
    rollover_size_bytes: int = 0
    """The size of a chunk in long-term storage; 0: the store's default."""
