"""Gives each host a share of something a second, and tells how long one that used more of it has to wait."""

from __future__ import annotations

from typing import Final

from pravega_common.runtime.clock import Clock

hosts_max: Final = 4_096
"""Hosts above which those are forgotten that have their whole share again."""
forget_period_s: Final = 1.0
"""The shortest time between two looks for such hosts, so that many hosts at once cost no look each."""


class HostShares:
    """Counts what hosts used, as the time at which all of it is made up for.

    ``per_s``: the share of a host a second. ``burst_s``: the seconds whose share it may use at once after a while
    without. ``pause_max_s``: the longest pause; what was used beyond it is forgiven.
    """

    def __init__(self, clock: Clock, per_s: float, burst_s: float, pause_max_s: float) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst_s = burst_s
        self._pause_max_s = pause_max_s
        self._paid_until_s: dict[str, float] = {}
        self._forgot_s = -forget_period_s

    def note(self, host: str, count: int = 1) -> float:
        """Count what a host used; returns the seconds until it has a share again, 0 while it has one."""
        now_s = self._clock.monotonic_s()
        if len(self._paid_until_s) >= hosts_max and now_s - self._forgot_s >= forget_period_s:
            self._forget(now_s)
        until_s = max(self._paid_until_s.get(host, now_s), now_s) + count / self._per_s
        self._paid_until_s[host] = min(until_s, now_s + self._burst_s + self._pause_max_s)
        return self.pause_s(host)

    def pause_s(self, host: str) -> float:
        """Seconds until the host has a share again; 0 while it has one."""
        until_s = self._paid_until_s.get(host)
        return 0.0 if until_s is None else max(until_s - self._burst_s - self._clock.monotonic_s(), 0.0)

    def _forget(self, now_s: float) -> None:
        self._forgot_s = now_s
        self._paid_until_s = {host: until_s for host, until_s in self._paid_until_s.items() if until_s > now_s}
