"""Keeps the buckets of the scopes that have limits of bytes a second."""

from __future__ import annotations

from collections.abc import Mapping

from pravega_common.names import SYSTEM_SCOPE
from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.byte_limits import ByteLimits
from segment_service.quotas.byte_bucket import ByteBucket


class ScopeBuckets:
    """The buckets of one direction; false while no scope is limited."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, ByteBucket] = {}
        self._earlier_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._buckets)

    @property
    def throttled_s(self) -> float:
        """Time that connections and reads have waited for their scopes' limits."""
        return self._earlier_s + sum(bucket.waited_s for bucket in self._buckets.values())

    def of(self, segment: str) -> ByteBucket | None:
        """The bucket of a segment's scope; None for one without a limit."""
        return self._buckets.get(segment.partition("/")[0])

    def change(self, rates: Mapping[str, float]) -> None:
        """Set the limits of all scopes. A bucket whose scope keeps a limit keeps what it owes."""
        for scope in self._buckets.keys() - rates.keys():
            bucket = self._buckets.pop(scope)
            bucket.change(None)
            self._earlier_s += bucket.waited_s
        for scope, rate in rates.items():
            if scope == SYSTEM_SCOPE:
                continue
            standing = self._buckets.get(scope)
            if standing is None:
                self._buckets[scope] = ByteBucket(rate, self._clock)
            else:
                standing.change(rate)


class ByteQuotas:
    """The limits of a store: its share of those of the cluster."""

    def __init__(self, clock: Clock) -> None:
        self.inward = ScopeBuckets(clock)
        """Limits what writers send."""
        self.outward = ScopeBuckets(clock)
        """Limits what readers get."""

    def share(self, limits: Mapping[str, ByteLimits], stores: int) -> None:
        """Hold an equal part of the limits from now on, of as many as there are stores."""
        self.inward.change({scope: one.bytes_in / stores for scope, one in limits.items() if one.bytes_in is not None})
        self.outward.change(
            {scope: one.bytes_out / stores for scope, one in limits.items() if one.bytes_out is not None}
        )
