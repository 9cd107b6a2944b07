"""Counts how long the requests of all connections took, from their arrival to their replies."""

from __future__ import annotations

from dataclasses import dataclass, field

from pravega_common.services.latency import LatencyCounts
from segment_service.host.read_notes import ReadNotes


@dataclass(slots=True)
class RequestTimes:
    """The times of one server's requests.

    Of each writer one append at a time is timed, as TCP times its segments: those that are sent while it waits cost
    nothing, whatever their number.
    """

    appends: LatencyCounts = field(default_factory=LatencyCounts)
    """Timed appends, from the arrival of the last byte to the acknowledgement."""
    reads: LatencyCounts = field(default_factory=LatencyCounts)
    """Reads of bytes that were there, which those that waited at the tail are not."""
    read_bytes: int = 0
    """Bytes of segments that were sent to readers."""
    reads_of: ReadNotes = field(default_factory=ReadNotes)
    """The same bytes by segment, while somebody looks at them."""
    requests: dict[str, LatencyCounts] = field(default_factory=dict)
    """All other requests, by the name of their command."""

    def note_sent(self, segment: str, length: int) -> None:
        """Count the bytes of a segment that are sent to a reader."""
        self.read_bytes += length
        self.reads_of.note(segment, length)

    def note_request(self, command: object, duration_s: float) -> None:
        """Count a request; ``command`` is of one of the types that the server knows, whose number is fixed."""
        name = type(command).__name__
        counts = self.requests.get(name)
        if counts is None:
            counts = self.requests[name] = LatencyCounts()
        counts.note(duration_s)
