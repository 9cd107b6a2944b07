"""Holds the limits that all connections of a server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.host_counts import HostCounts
from segment_service.host.deadlines import DeadlineQueue
from segment_service.host.held_bytes import OpenFrames, UnsentReplies
from segment_service.host.in_flight import InFlightBudget
from segment_service.host.merged_writers import MergedWriters
from segment_service.host.refusals import HostRefusals, refusals_per_peer_per_s_default

hello_time_max_s: Final = 10.0
"""Time in which a peer has to say Hello."""
frame_time_max_s: Final = 60.0
"""Time after which a frame that was open before must be complete. It takes at most twice as long to notice."""
server_reads_max: Final = 65_536
"""Reads of all connections that may wait; one takes 15 KiB with a connection of its own. One more is refused.
It may be made again later."""
server_open_frame_bytes_max: Final = 512 * 1024 * 1024
"""Bytes of frames that have begun and are not complete, of all connections; those below 64 KiB are not counted."""
server_unsent_bytes_max: Final = 1024 * 1024 * 1024
"""Reply bytes of all connections that their peers have not taken."""
server_writers_max: Final = 131_072
"""Writers that all connections may have set up. One takes about 1.1 KiB, and 2 KiB more with the longest name."""
host_writers_max: Final = server_writers_max // 2
"""Those of the connections of one host."""


@dataclass(slots=True)
class ServerBudgets:
    """Counts over all connections of a server."""

    hello: DeadlineQueue
    frames: DeadlineQueue
    unsent: UnsentReplies
    refusals: HostRefusals
    in_flight: InFlightBudget = field(default_factory=InFlightBudget)
    open_frames: OpenFrames = field(default_factory=lambda: OpenFrames(server_open_frame_bytes_max))
    reads_max: int = server_reads_max
    reads: int = 0
    refused_reads: int = 0
    writers: HostCounts = field(
        default_factory=lambda: HostCounts("writers", "are set up", server_writers_max, host_writers_max)
    )

    merged_writers: MergedWriters = field(default_factory=MergedWriters)

    @classmethod
    def of(
        cls,
        clock: Clock,
        in_flight: InFlightBudget | None = None,
        refusals_per_peer_per_s: int = refusals_per_peer_per_s_default,
    ) -> ServerBudgets:
        return cls(
            DeadlineQueue(clock, hello_time_max_s),
            DeadlineQueue(clock, frame_time_max_s),
            UnsentReplies(clock, server_unsent_bytes_max),
            HostRefusals(clock, refusals_per_peer_per_s),
            in_flight or InFlightBudget(),
        )
