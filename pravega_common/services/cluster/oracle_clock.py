"""Tells the time of day of the control plane oracle, so that all machines of a cluster have the same."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.problems import Problem

difference_max_s: Final = 30.0
"""Beyond it a service says so, and nothing is deleted for its age. The same is allowed to the times in tokens."""
set_min_ms: Final = 1_000
"""A machine's clock that changes by less between two renewals was not set: it is kept so, and read in milliseconds."""


class OracleClock:
    """A ``Clock`` by the machine's, whose time of day is the oracle's as of the last renewal of a lease.

    A time of day that the machine is given between two renewals counts as wrong: ``monotonic_s`` tells how much time
    went by. Until the first renewal, and while both are closer than an answer can tell, it is the machine's.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        # The machine's own: each append asks for them several times.
        self.monotonic_s, self.sleep = machine.monotonic_s, machine.sleep
        self._ahead_ms = 0
        self._started_ms = self._time_of_start_ms()

    def wall_ms(self) -> int:
        return self._machine.wall_ms() - self._ahead_now_ms()

    async def follow(self, renewal: Awaitable[int]) -> float:
        """Renew a lease, whose answer is the oracle's time of day. Returns when that began by ``monotonic_s``: the
        lease cannot end earlier than counted from there."""
        asked_s, asked_ms = self.monotonic_s(), self._machine.wall_ms()
        self.note(asked_ms, await renewal)
        return asked_s

    def note(self, asked_ms: int, oracle_ms: int) -> None:
        """Take the oracle's time, which it read between ``asked_ms`` by the machine and now.

        The known difference stays while it explains the answer, else it changes by as little as does.
        """
        at_least, at_most = asked_ms - oracle_ms, self._machine.wall_ms() - oracle_ms
        self._ahead_ms = min(max(self._ahead_now_ms(), at_least), at_most)
        self._started_ms = self._time_of_start_ms()

    @property
    def ahead_s(self) -> float:
        """Seconds that the machine is ahead of the oracle; negative where it is behind."""
        return self._ahead_now_ms() / 1000

    def is_right(self) -> bool:
        """Whether the machine and the oracle agree, so that one of them alone cannot make everything old."""
        return abs(self.ahead_s) <= difference_max_s

    def problem(self) -> Problem | None:
        """The problem of a service on this machine; ``None`` while the clocks agree."""
        if self.is_right():
            return None
        side = "ahead of" if self.ahead_s > 0 else "behind"
        text = f"the machine's clock is {abs(self.ahead_s):.0f} s {side} that of the control plane oracle"
        return Problem("clock-differs", text, _REMEDY, stops_work=False)

    def _ahead_now_ms(self) -> int:
        set_ms = self._time_of_start_ms() - self._started_ms
        return self._ahead_ms + (set_ms if abs(set_ms) >= set_min_ms else 0)

    def _time_of_start_ms(self) -> int:
        """Tells when ``monotonic_s`` was 0, by the machine's time of day: only a clock that is set changes it."""
        return self._machine.wall_ms() - int(self._machine.monotonic_s() * 1000)


_REMEDY: Final = (
    "set the clocks of all machines, of that Redis too, and let NTP keep them; controllers delete nothing for its age "
    "until then"
)
