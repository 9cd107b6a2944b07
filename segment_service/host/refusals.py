"""Slows down hosts whose requests are refused again and again, so that refusing costs the others little.

What a refusal costs is the loop's time, of which everybody's appends need a little. Who is refused rarely waits for
nothing; a host beyond its share is not read until its share has grown enough.
"""

from __future__ import annotations

from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    ILLEGAL_ARGUMENT,
    AuthTokenCheckFailed,
    Command,
    ErrorMessage,
    RequestBatchAnswered,
)

refusals_per_s: Final = 1_000
"""Refused requests of one host a second; each takes a store some 0.1 ms, so a host gets a tenth of the loop."""
refusals_burst: Final = 2_000
"""Refused requests of a host that cost no pause when it had none before: tokens of many writers may end together."""
connection_refusals: Final = 4
"""Refused requests for which a connection counts that ends for its peer's fault, or before it said Hello."""
pause_max_s: Final = 30.0
"""The longest that a connection is not read for what was refused; more is forgiven."""
new_connection_pause_max_s: Final = 1.0
"""The same for a new connection, whose peer may be another one of the same host."""
hosts_max: Final = 4_096
"""Hosts above which those are forgotten that have their whole share again."""
forget_period_s: Final = 1.0
"""The shortest time between two looks for such hosts, so that many hosts at once cost no look each."""
_burst_s: Final = refusals_burst / refusals_per_s


def refused_in(reply: Command) -> int:
    """Count the requests that a reply refuses; of a batch the first reply stands for all."""
    if isinstance(reply, RequestBatchAnswered):
        first = codec.frame_type(reply.replies[0]) if reply.replies else None
        return len(reply.replies) if first == AuthTokenCheckFailed.type_code else 0
    if isinstance(reply, ErrorMessage):
        return int(reply.error_code == ILLEGAL_ARGUMENT)
    return int(isinstance(reply, AuthTokenCheckFailed))


class HostRefusals:
    """Counts what is refused, by host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paid_until_s: dict[str, float] = {}
        """By host, the time at which all that was refused is made up for."""
        self._forgot_s = -forget_period_s

    def note(self, host: str, requests: int = 1) -> float:
        """Count refused requests; returns the seconds for which their connection is not to be read."""
        now_s = self._clock.monotonic_s()
        if len(self._paid_until_s) >= hosts_max and now_s - self._forgot_s >= forget_period_s:
            self._forget(now_s)
        until_s = max(self._paid_until_s.get(host, now_s), now_s) + requests / refusals_per_s
        self._paid_until_s[host] = min(until_s, now_s + _burst_s + pause_max_s)
        return self.pause_s(host)

    def pause_s(self, host: str) -> float:
        """Seconds until the host has a share again; 0 while it has one."""
        until_s = self._paid_until_s.get(host)
        return 0.0 if until_s is None else max(until_s - _burst_s - self._clock.monotonic_s(), 0.0)

    def _forget(self, now_s: float) -> None:
        self._forgot_s = now_s
        self._paid_until_s = {host: until_s for host, until_s in self._paid_until_s.items() if until_s > now_s}
