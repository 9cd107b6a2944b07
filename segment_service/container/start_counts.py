"""Counts the starts of containers: how long those took that succeeded, and how many failed or stopped by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from pravega_common.services.latency import LatencyCounts


@dataclass(slots=True)
class StartCounts:
    """The numbers of one store since the start of its process."""

    recoveries: LatencyCounts = field(default_factory=LatencyCounts)
    """From a start to the first request that is taken; long ones ended, however long they waited for Tier 1 or 2."""
    failures: int = 0
    """Containers that failed at their start or later."""
