"""Narrows the spans of a batch read by filters on their columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pravega_spark.source.range_planner import Span

Test = Callable[[Any], bool]


@dataclass(frozen=True)
class Filters:
    """The filters of one read.

    ``tests``: by column, whether a value passes. ``first`` and ``last``: the offsets that rows may have, both included.
    """

    tests: tuple[tuple[str, Test], ...] = ()
    first: int = 0
    last: int = 2**63 - 1

    def takes_stream(self, scope: str, stream: str) -> bool:
        known = {"scope": scope, "stream": stream}
        return all(holds(known[column]) for column, holds in self.tests if column in known)

    def narrowed(
        self, span: Span, before: Callable[[int, int, int], int], after: Callable[[int, int, int], int]
    ) -> Span | None:
        """The rest of a span; it may still hold rows with offsets that are not wanted.

        ``before(segment id, offset, start)`` gives a boundary at or before an offset, ``after(segment id, offset,
        end)`` one at or after it.
        """
        if not all(holds(span.segment_id) for column, holds in self.tests if column == "segment_id"):
            return None
        start, end = span.start, span.end
        if self.first > start:
            start = before(span.segment_id, min(self.first, end), start)
        if self.last + 1 < end:
            end = max(start, after(span.segment_id, max(self.last + 1, start), end))
        return Span(span.scope, span.stream, span.segment_id, start, end) if start < end else None


NO_FILTERS: Final = Filters()
