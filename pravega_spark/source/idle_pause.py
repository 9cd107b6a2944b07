"""Spaces the looks of an idle source for new data: Spark asks every 10 ms, and a look costs a question a segment.

A look is put off and never left out: ``processAllAvailable`` counts on what was written before it being found.
"""

from __future__ import annotations

from typing import Any, Final

looking_share: Final = 60
"""A source that just became idle looks during one part in this many of the time, while ``pause_max_s`` allows it: so
the CPU that it and its stores use together stays below 2 % of a core."""
looking_share_long: Final = 200
"""The same of one that is idle for long: what it finds may come later by ``idle_share``. So it uses less than 1 % of a
core together with its stores, which take about half as long for a look."""
long_pause_min_s: Final = 0.2
"""One that is idle for long looks no more often, however little a look costs: being asked by Spark costs as much."""
idle_share: Final = 20
"""A look is put off for at most one part in this many of the time that the source is idle already, beyond
``looking_share``: who wrote after a quiet minute does not notice some tenths of a second."""
pause_max_s: Final = 0.5
"""The longest time by which a look is put off; a query that is stopped waits for as long."""
free_look_s: Final = 0.002
"""A look that takes no longer costs next to nothing: none is put off after it by ``looking_share``."""


class IdlePause:
    """Says how long to wait after a look that found nothing, by what that look cost and how long nothing came."""

    def __init__(self) -> None:
        self._start: dict[str, Any] | None = None
        self._since_s = 0.0
        self._until_s = 0.0

    def wait_s(self, start: dict[str, Any], now_s: float) -> float:
        """Returns the time to wait before a look from this position; 0 where the last one found something."""
        return max(0.0, self._until_s - now_s) if start == self._start else 0.0

    def found_nothing(self, start: dict[str, Any], began_s: float, ended_s: float, *, is_watched: bool = False) -> None:
        """Note a look. ``is_watched``: what comes ends a pause, so that a long one delays it by nothing."""
        if start != self._start:
            self._start, self._since_s = start, began_s
        took_s = ended_s - began_s
        at_once_s = took_s * looking_share if took_s > free_look_s else 0.0
        long_s = pause_max_s if is_watched else max(long_pause_min_s, took_s * looking_share_long)
        in_time_s = min(long_s, (began_s - self._since_s) / idle_share)
        self._until_s = ended_s + min(pause_max_s, max(at_once_s, in_time_s))
