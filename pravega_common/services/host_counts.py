"""Counts what peers have of something, against a limit of all and one of each host."""

from __future__ import annotations

from collections import Counter


class HostCounts:
    """One host leaves room for others, as long as the limit of a host lies below that of all.

    ``noun`` and ``state`` name what is counted in refusals: "writers", "are set up".
    """

    def __init__(self, noun: str, state: str, total_max: int, per_host_max: int) -> None:
        self.total_max = total_max
        self.per_host_max = per_host_max
        self.total = 0
        self.refused_total = 0
        self._noun = noun
        self._state = state
        self._by_host: Counter[str] = Counter()

    def enter(self, host: str) -> str:
        """Count one more of a host; the reason why it is refused, or an empty text."""
        reason = self.refusal(host)
        if reason:
            self.refused_total += 1
            return reason
        self.total += 1
        self._by_host[host] += 1
        return ""

    def leave(self, host: str, count: int = 1) -> None:
        """Forget one of a host, or several."""
        self.total -= count
        self._by_host[host] -= count
        if not self._by_host[host]:
            del self._by_host[host]

    def refusal(self, host: str) -> str:
        """The reason why one more of a host would be refused, or an empty text; counts nothing."""
        if self.total >= self.total_max:
            return f"{self.total_max} {self._noun} {self._state}, the limit of all: try again later"
        if self.is_at_limit(host):
            return f"{self.per_host_max} {self._noun} of {host} {self._state}, the limit of a host: try again later"
        return ""

    def is_at_limit(self, host: str) -> bool:
        """Whether the host has as many as a host may have."""
        return self._by_host[host] >= self.per_host_max
