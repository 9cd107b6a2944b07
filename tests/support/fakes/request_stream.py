"""Keeps what stores report to the controllers in memory."""

from __future__ import annotations

from collections.abc import Sequence

from pravega_common.errors import PravegaError, SegmentNotFound, SegmentSealed
from pravega_common.model.auto_scale_event import AutoScaleEvent


class InMemoryRequestStream:
    """``RequestStream`` in a dictionary. A segment that was not created is not there; ``failure`` fails every call."""

    def __init__(self, *segments: str) -> None:
        self.events: dict[str, list[AutoScaleEvent]] = {segment: [] for segment in segments}
        self.sealed: set[str] = set()
        self.failure: PravegaError | None = None
        self.calls = 0

    async def append(self, segment: str, events: Sequence[AutoScaleEvent]) -> None:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        if segment not in self.events:
            raise SegmentNotFound(segment)
        if segment in self.sealed:
            raise SegmentSealed(segment)
        self.events[segment].extend(events)
