"""Counts the requests of all connections that the store has not answered, against named limits.

The limits lie below those of a container's operation queue: a store that is slow for a while leaves sockets unread,
it does not refuse appends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pravega_common.invariants import check

server_bytes_in_flight_max: Final = 48 * 1024 * 1024
"""Bytes of appends and table updates of all connections; one frame may exceed it."""
server_appends_in_flight_max: Final = 32_768


class InFlightBudget:
    """Counts bytes and appends, and wakes those who waited once there is room again."""

    def __init__(
        self, bytes_max: int = server_bytes_in_flight_max, appends_max: int = server_appends_in_flight_max
    ) -> None:
        self.bytes = 0
        self.appends = 0
        self.is_full = False
        self._bytes_max = bytes_max
        self._appends_max = appends_max
        self._waiting: dict[Callable[[], None], None] = {}

    def change(self, bytes_delta: int, appends_delta: int) -> None:
        self.bytes += bytes_delta
        self.appends += appends_delta
        check(self.bytes >= 0 and self.appends >= 0, "in flight below zero", bytes=self.bytes, appends=self.appends)
        was_full = self.is_full
        self.is_full = self.bytes >= self._bytes_max or self.appends >= self._appends_max
        if was_full and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def wake_when_open(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when there is room again; asking twice is asking once."""
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)
