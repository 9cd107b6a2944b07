"""Slows down hosts whose calls are refused again and again, so that refusing costs the others little.

What a refusal costs is the loop's time, which everybody's calls need. A host may be refused some calls a second; the
answers to further refused ones are held until its share has grown enough. Only answers that refuse are held: who shares
an address with such a host, a proxy's for example, is answered as always.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter

from pravega_common.errors import AccessDenied, AuthenticationFailed, InvalidArgument, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.host_counts import HostCounts
from pravega_common.services.host_shares import HostShares

refusals_per_peer_per_s_default: Final = 100
"""Refused calls of one host a second; each takes a controller some 1 ms with what comes around it, so a host gets a
tenth of the loop."""
burst_s: Final = 1.0
"""Seconds whose share costs no wait when a host had no refusals before: the tokens of many callers may end together."""
hold_max_s: Final = 5.0
"""The longest that an answer is held: far below the time that clients wait for one."""
held_max: Final = 2_048
"""Answers held at a time. gRPC takes 10,000 calls in all, of which most must be left to others."""
held_per_peer_max: Final = 1_024
"""Those of one host. What is refused beyond is answered at once."""
held_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of the requests whose answers are held: a call is kept with its request until it is answered."""
_REFUSALS: Final = (AuthenticationFailed, AccessDenied, InvalidArgument)

HELD: Final = Counter(
    "pravega_controller_held_back_calls",
    "Refused gRPC and REST calls whose answers were held, as too much of their host was refused",
)


class RefusedCalls:
    """Counts the refused calls of both APIs, by host, and holds answers to those beyond the share of a host."""

    def __init__(self, clock: Clock, per_peer_per_s: int = refusals_per_peer_per_s_default) -> None:
        self._clock = clock
        self._shares = HostShares(clock, per_peer_per_s, burst_s, hold_max_s)
        self._held = HostCounts("refusals", "are held", held_max, held_per_peer_max)
        self._held_bytes = 0

    @property
    def held_count(self) -> int:
        """Answers that are held at this moment."""
        return self._held.total

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @staticmethod
    def counts(error: PravegaError) -> bool:
        """Whether an error refuses a call for what it is, and not for what there is."""
        return isinstance(error, _REFUSALS)

    async def hold(self, host: str, request_bytes: int = 0) -> None:
        """Count a refused call of a host; returns when it may be answered."""
        pause_s = self._shares.note(host)
        if pause_s <= 0 or self._held_bytes + request_bytes > held_bytes_max or self._held.enter(host):
            return
        HELD.inc()
        self._held_bytes += request_bytes
        try:
            await self._clock.sleep(pause_s)
        finally:
            self._held_bytes -= request_bytes
            self._held.leave(host)
