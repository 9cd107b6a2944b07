"""Chooses the controller for the next call, and avoids those that did not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

avoid_time_min_s: Final = 5.0
"""How long a controller is avoided after it did not answer; doubled each time that it fails again."""
avoid_time_max_s: Final = 120.0


class EndpointChoice:
    """Takes the endpoints in turn, first those that answered. Safe to use from several threads.

    ``now_s`` is a monotonic clock in seconds.
    """

    def __init__(self, count: int, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._avoided_until_s = [0.0] * count
        self._avoid_time_s = [avoid_time_min_s] * count
        self._last = count - 1
        self._lock = threading.RLock()  # As a Ctrl-C in Python 3.14 may leave it held by its thread.

    def next(self) -> int:
        """The index of an endpoint that is not avoided, or of the one that is avoided for the shortest time."""
        with self._lock:
            count, now_s = len(self._avoided_until_s), self._now_s()
            turn = [(self._last + 1 + step) % count for step in range(count)]
            self._last = min(turn, key=lambda index: max(self._avoided_until_s[index] - now_s, 0.0))
            return self._last

    def failed(self, index: int) -> None:
        with self._lock:
            self._avoided_until_s[index] = self._now_s() + self._avoid_time_s[index]
            self._avoid_time_s[index] = min(2 * self._avoid_time_s[index], avoid_time_max_s)

    def answered(self, index: int) -> None:
        with self._lock:
            self._avoided_until_s[index] = 0.0
            self._avoid_time_s[index] = avoid_time_min_s
