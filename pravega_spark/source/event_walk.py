"""Steps over events by their headers, to find the exact end of a number of events.

An index knows only some boundaries; between them the headers must be read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pravega_spark.gateway.contract import RangeSource
from pravega_spark.rows.framing import EventWindow

window_bytes: Final = 64 * 1024


class Walked(NamedTuple):
    """A boundary, and the events passed on the way to it."""

    offset: int
    events: int


def walk(source: RangeSource, events_max: int, bytes_max: int) -> Walked:
    """Step from the start of a range (a boundary) over at most ``events_max`` events, and about ``bytes_max`` bytes.

    Passes at least one event unless the range has no whole one. ``DataCorruption`` for bytes that are not events.
    """
    first = source.position
    window = EventWindow(first, window_bytes)
    events = 0
    while events < events_max:
        count = source.read_into(window.free())
        if count == 0:
            break
        window.filled(count)
        index = window.index()
        wanted = events_max - events
        if wanted < len(index.starts):
            return Walked(window.offset + int(index.starts[wanted]), events_max)
        events += len(index.starts)
        window.consume(index)
        if events and window.offset - first >= bytes_max:
            break
    return Walked(window.offset, events)
