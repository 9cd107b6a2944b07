"""Counts what one connection has on its way to the store, against named limits.

A state machine without I/O: the connection is not read while one of its answers says so.
"""

from __future__ import annotations

from typing import Final

from segment_service.host.in_flight import InFlightBudget

bytes_in_flight_max: Final = 16 * 1024 * 1024
"""Bytes of one connection's appends and requests that are not answered yet, above which it is not read: further than
the next frame that brings bytes, or at all if the requests alone are that many."""
appends_in_flight_max: Final = 8_192
"""Appends of one connection that are not answered yet, above which it is not read."""
requests_in_flight_max: Final = 256
"""Requests of one connection, reads apart, that are being served, above which it is not read."""


class ConnectionLoad:
    """The counts of one connection; bytes and appends count for the budget of all connections, too."""

    __slots__ = ("_appends", "_budget", "_bytes", "_request_bytes", "_requests", "requests_begun")

    def __init__(self, budget: InFlightBudget) -> None:
        self.requests_begun = 0
        """Requests that ever began."""
        self._budget = budget
        self._bytes = 0
        self._appends = 0
        self._requests = 0
        self._request_bytes = 0
        """Bytes of requests without a reply. Unlike ``_bytes`` they have those whose answer was made, and is made again
        when the peer may have it: these wait for nothing of the store's, and hold nobody else up."""

    def change(self, bytes_delta: int, appends_delta: int) -> None:
        """Change what was taken and is not answered by the store yet."""
        self._bytes += bytes_delta
        self._appends += appends_delta
        self._budget.change(bytes_delta, appends_delta)

    def request_begins(self) -> None:
        self._requests += 1
        self.requests_begun += 1

    def request_ends(self) -> None:
        self._requests -= 1

    def change_unanswered(self, bytes_delta: int) -> None:
        """Change the bytes of requests that have no reply yet."""
        self._request_bytes += bytes_delta

    @property
    def has_too_many_requests(self) -> bool:
        """Whether no further request can be taken."""
        return self._requests >= requests_in_flight_max or self._request_bytes >= bytes_in_flight_max

    @property
    def is_full(self) -> bool:
        """Whether no further frame can be taken that brings bytes."""
        return self._bytes >= bytes_in_flight_max or self._appends >= appends_in_flight_max or self._budget.is_full
