"""Defines how far those who read a stream are behind its tail, as a controller tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

streams_per_call_max: Final = 50
"""Streams whose lag one call tells."""


@dataclass(frozen=True, slots=True)
class DescribedSubscriber:
    """The distance of a reader group, or of a query with the option ``subscriber``, from the tail."""

    name: str
    """``scope/name``."""
    updated_ms: int
    """When it told its position; 0 for one that has not yet."""
    behind_bytes: int | None
    was_truncated: bool = False
    """Whether something that it has still to read is gone."""
    unknown: str = ""
    """Why the distance is not known."""


@dataclass(frozen=True, slots=True)
class DescribedLag:
    """The subscribers of one stream, those first that told no position for the longest time."""

    scope: str
    stream: str
    subscribers: tuple[DescribedSubscriber, ...] = ()
    left_out: int = 0
    """Further subscribers."""
    unknown: str = ""
    """Why lengths of segments are missing; empty if none is."""
