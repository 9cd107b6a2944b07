"""Keeps the transient segments of one connection, which end with it unless they were merged before."""

from __future__ import annotations

from typing import Final

import structlog

from pravega_common.runtime.clock import Clock
from pravega_common.wire.errors import WireProtocolError
from segment_service.host.request_processor import RequestProcessor

transient_segments_max: Final = 1_024
"""Transient segments that one connection may have at a time."""
transient_delete_attempts_max: Final = 5
transient_delete_pause_s: Final = 1.0

_log = structlog.get_logger(service="wire-server")


class TransientSegments:
    """The names of the transient segments of one connection; false while it has none."""

    def __init__(self, requests: RequestProcessor, clock: Clock) -> None:
        self.delete_attempts_max = transient_delete_attempts_max
        self._requests = requests
        self._clock = clock
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names)

    def require_room(self) -> None:
        """Raise ``WireProtocolError`` if the connection may have no more of them."""
        if len(self._names) >= transient_segments_max:
            raise WireProtocolError(
                "CreateTransientSegment",
                f"more than {transient_segments_max} transient segments on a connection at a time",
            )

    def add(self, segment: str) -> None:
        """Keep a name, before the segment exists: if the connection is lost while it is made, it is deleted still."""
        self._names.add(segment)

    def merged(self, segment: str) -> None:
        """Note that a segment is merged: nothing is left of it to delete."""
        self._names.discard(segment)

    async def delete_all(self) -> None:
        """Delete those that are left, with ``delete_attempts_max`` attempts for each."""
        for segment in sorted(self._names):
            for _ in range(self.delete_attempts_max):
                if await self._requests.delete_transient(segment):
                    break
                if self.delete_attempts_max > 1:
                    await self._clock.sleep(transient_delete_pause_s)
            else:
                _log.warning("transient segment left behind", segment=segment)
