"""Counts the traffic of the busiest streams of a store, and that of all others together. No I/O, no clock."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

busiest_streams_default: Final = 100
recent_share: Final = 0.2
"""The weight of the last tick in a stream's recent mean: with ticks of 5 s, the mean is that of some 25 s."""
takeover_factor: Final = 2.0
"""A stream takes the place of the least busy listed one when it brings over this many times the latter's mean."""
idle_max_s: Final = 3_600.0
"""A listed stream without traffic for this long is listed no more."""


@dataclass(slots=True)
class StreamTraffic:
    """Bytes and events written, and bytes read."""

    in_bytes: int = 0
    in_events: int = 0
    out_bytes: int = 0

    def add(self, other: StreamTraffic) -> None:
        self.in_bytes += other.in_bytes
        self.in_events += other.in_events
        self.out_bytes += other.out_bytes

    @property
    def bytes(self) -> int:
        return self.in_bytes + self.out_bytes


@dataclass(slots=True)
class _Listed:
    counts: StreamTraffic
    recent: float
    """The recent mean of bytes a tick."""
    active_s: float


class BusiestStreams:
    """A table of at most ``streams_max`` streams, and one sum of what came to streams that were not listed then.

    Every byte is counted once: in the counter of its stream if that is listed, else in the sum. A stream that loses its
    place loses its counter, and begins at zero when it comes back, as counters of Prometheus may.
    """

    def __init__(self, streams_max: int = busiest_streams_default) -> None:
        self._streams_max = streams_max
        self._listed: dict[str, _Listed] = {}
        self.others = StreamTraffic()

    @property
    def listed(self) -> Mapping[str, StreamTraffic]:
        """The counts of the listed streams, by ``scope/stream``."""
        return {stream: one.counts for stream, one in self._listed.items()}

    def tick(self, came: Mapping[str, StreamTraffic], now_s: float) -> None:
        """Count what came since the last tick; the cost is that of the streams that had traffic and of the table."""
        self._forget_idle(now_s)
        for stream, one in self._listed.items():
            amount = came[stream].bytes if stream in came else 0
            one.recent += recent_share * (amount - one.recent)
        self._let_in(came, now_s)
        for stream, found in came.items():
            listed = self._listed.get(stream)
            if listed is None:
                self.others.add(found)
            else:
                listed.counts.add(found)
                listed.active_s = now_s

    def add_unnamed(self, found: StreamTraffic) -> None:
        """Count traffic whose stream is not known."""
        self.others.add(found)

    def _forget_idle(self, now_s: float) -> None:
        for stream in [name for name, one in self._listed.items() if now_s - one.active_s > idle_max_s]:
            del self._listed[stream]

    def _let_in(self, came: Mapping[str, StreamTraffic], now_s: float) -> None:
        """List the busiest of the others where there is room, or a listed one is much less busy."""
        others = (stream for stream in came if stream not in self._listed)
        busiest = heapq.nlargest(self._streams_max, others, key=lambda stream: came[stream].bytes)
        places = sorted(self._listed, key=lambda stream: self._listed[stream].recent, reverse=True)
        for stream in busiest:
            amount = came[stream].bytes
            if len(self._listed) >= self._streams_max:
                if not places or amount <= takeover_factor * self._listed[places[-1]].recent:
                    break
                del self._listed[places.pop()]
            self._listed[stream] = _Listed(StreamTraffic(), float(amount), now_s)
