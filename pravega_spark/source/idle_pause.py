"""Spaces the looks of an idle source for new data: Spark asks every 10 ms, and a look costs a question a segment.

A look is put off and never left out: ``processAllAvailable`` counts on what was written before it being found.
"""

from __future__ import annotations

from typing import Any, Final

looking_share: Final = 20
"""An idle source looks for new data during one part in this many of the time, while ``pause_max_s`` allows it."""
pause_max_s: Final = 0.5
"""The longest time by which a look is put off; a query that is stopped waits for as long."""
free_look_s: Final = 0.002
"""A look that takes no longer costs next to nothing: none is put off after it."""


class IdlePause:
    """Says how long to wait after a look that found nothing, in proportion to what that look cost."""

    def __init__(self) -> None:
        self._start: dict[str, Any] | None = None
        self._until_s = 0.0

    def wait_s(self, start: dict[str, Any], now_s: float) -> float:
        """Returns the time to wait before a look from this position; 0 where the last one found something."""
        return max(0.0, self._until_s - now_s) if start == self._start else 0.0

    def found_nothing(self, start: dict[str, Any], began_s: float, ended_s: float) -> None:
        took_s = ended_s - began_s
        self._start = start
        self._until_s = ended_s + (min(pause_max_s, took_s * looking_share) if took_s > free_look_s else 0.0)
