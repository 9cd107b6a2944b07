"""Slows down hosts whose requests are refused again and again, so that refusing costs the others little.

What a refusal costs is the loop's time, of which everybody's appends need a little. Who is refused rarely waits for
nothing; a host beyond its share is not read until its share has grown enough.
"""

from __future__ import annotations

from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.host_shares import HostShares
from pravega_common.wire import codec
from pravega_common.wire.commands import (
    ILLEGAL_ARGUMENT,
    AuthTokenCheckFailed,
    Command,
    ErrorMessage,
    RequestBatchAnswered,
)

refusals_per_peer_per_s_default: Final = 400
"""Refused requests of one host a second; each takes a store some 0.25 ms with what peers send around it, so a host gets
a tenth of the loop."""
burst_s: Final = 1.0
"""Seconds whose share costs no pause when a host had no refusals before: tokens of many writers may end together. While
they come, they may take the whole loop, a tenth of a second then."""
connection_refusals: Final = 4
"""Refused requests for which a connection counts that ends for its peer's fault, or before it said Hello."""
pause_max_s: Final = 30.0
"""The longest that a connection is not read for what was refused; more is forgiven."""
new_connection_pause_max_s: Final = 1.0
"""The same for a new connection, whose peer may be another one of the same host."""


def refused_in(reply: Command) -> int:
    """Count the requests that a reply refuses; of a batch the first reply stands for all."""
    if isinstance(reply, RequestBatchAnswered):
        first = codec.frame_type(reply.replies[0]) if reply.replies else None
        return len(reply.replies) if first == AuthTokenCheckFailed.type_code else 0
    if isinstance(reply, ErrorMessage):
        return int(reply.error_code == ILLEGAL_ARGUMENT)
    return int(isinstance(reply, AuthTokenCheckFailed))


class HostRefusals(HostShares):
    """Counts what is refused, by host, and the seconds for which a refused connection is not to be read."""

    def __init__(self, clock: Clock, per_peer_per_s: int = refusals_per_peer_per_s_default) -> None:
        super().__init__(clock, per_peer_per_s, burst_s, pause_max_s)
        self.held_back_total = 0
        """Pauses in which a connection was not read for what was refused."""
