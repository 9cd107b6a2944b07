"""Ends a micro-batch where the limits of a trigger have it: all that are configured hold, and the nearest wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.offsets import OffsetsByStream
from pravega_spark.source.range_planner import share
from pravega_spark.source.segment_events import SegmentEvents
from pravega_streams.segment.event_index import EventCount

Ends = dict[str, dict[int, int]]
BySegment = dict[tuple[str, int], int]
"""A number for each segment that has a backlog, by ``scope/stream`` and segment id."""

certain_excess: Final = 2
"""An estimate of this many times the limit of events is certain to be more than the limit."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TriggerLimits:
    """The limits of one source. A plan costs a few round trips a store, whatever the number of segments."""

    def __init__(self, options: ReadOptions) -> None:
        self._bytes = options.approx_bytes_per_trigger
        self._events = options.max_events_per_trigger
        self._streams: Mapping[str, SegmentEvents] = {}
        self._has_warned = False

    def apply(
        self, streams: Mapping[str, SegmentEvents], position: OffsetsByStream, backlogs: BySegment, ends: Ends
    ) -> None:
        """Move ``ends`` back as far as the limits want; ``backlogs`` are bytes behind ``position``."""
        self._streams = streams
        if self._bytes is not None:
            self._limit_bytes(self._bytes, position, backlogs, ends)
        if self._events is not None:
            self._limit_events(self._events, position, backlogs, ends)

    def _limit_bytes(self, limit: int, position: OffsetsByStream, backlogs: BySegment, ends: Ends) -> None:
        wanted = {
            (name, item): (position[name][item], size, ends[name][item])
            for (name, item), size in share(limit, backlogs).items()
            if size < ends[name][item] - position[name][item]
        }
        for name, some in _by_stream(wanted).items():
            ends[name].update(self._streams[name].after_bytes_of_many(some))

    def _limit_events(self, limit: int, position: OffsetsByStream, backlogs: BySegment, ends: Ends) -> None:
        counts = self._counted(limit, position, backlogs)
        if counts is None or sum(counts.values()) <= limit:
            return
        wanted = {
            (name, item): (position[name][item], ends[name][item], count)
            for (name, item), count in share(limit, counts).items()
            if count
        }
        for name, some in _by_stream(wanted).items():
            found = self._streams[name].after_events_of_many(some)
            ends[name].update({item: end for item, end in found.items() if end is not None})
            if None in found.values():
                self._warn_unlimited(name)

    def _counted(self, limit: int, position: OffsetsByStream, backlogs: BySegment) -> BySegment | None:
        """Events of each backlog: counted, or about right where there are far more than the limit. None: no index."""
        spans = {
            (name, item): (position[name][item], position[name][item] + backlog)
            for (name, item), backlog in backlogs.items()
        }
        by_stream = _by_stream(spans)
        for name, some in by_stream.items():
            self._streams[name].prepare(some)
        about: dict[tuple[str, int], EventCount] = {}
        for (name, item), span in spans.items():
            found = self._streams[name].estimated(item, *span)
            if found is None:
                self._warn_unlimited(name)
                return None
            about[name, item] = found
        counts = {key: found.events for key, found in about.items()}
        doubtful = [key for key, found in about.items() if not found.is_exact]
        if sum(counts.values()) > limit * certain_excess:
            # An index that knows nothing of a segment yet says 1, which is no share of it.
            doubtful = [key for key in doubtful if counts[key] == 1 and not self._has_read_ahead(*key)]
        for name, some in _by_stream({key: spans[key] for key in doubtful}).items():
            for item, counted in self._streams[name].count_of_many(some).items():
                counts[name, item] = counts[name, item] if counted is None else counted
        return counts

    def _has_read_ahead(self, name: str, segment_id: int) -> bool:
        return self._streams[name].has_read_ahead(segment_id)

    def _warn_unlimited(self, name: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "max_events_per_trigger has no effect: the store of %s keeps no index of event boundaries (Pravega "
                "does from version 0.14 on); use approx_bytes_per_trigger",
                name,
            )


def _by_stream(items: Mapping[tuple[str, int], T]) -> dict[str, dict[int, T]]:
    grouped: dict[str, dict[int, T]] = {}
    for (name, item), value in items.items():
        grouped.setdefault(name, {})[item] = value
    return grouped
