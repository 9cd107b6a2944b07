"""Ends a micro-batch where the limits of a trigger have it: all that are configured hold, and the nearest wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from pravega_spark.options.read_options import ReadOptions
from pravega_spark.rows.framing import event_header_bytes
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
        self._events_min = options.min_events_per_trigger
        self._delay_max_s = options.max_trigger_delay / 1000
        self._bytes_left: int | None = None
        self._events_left: int | None = None
        self._has_taken = False
        self.is_spent = False
        """Whether a limit has ended the batch: nothing more may be taken."""
        self._held_since_s: float | None = None
        self._streams: Mapping[str, SegmentEvents] = {}
        self._has_warned = False

    def begin(self, *, is_limited: bool) -> None:
        """Begin a batch, with the whole of each limit or with none."""
        self._bytes_left = self._bytes if is_limited else None
        self._events_left = self._events if is_limited else None
        self._has_taken = self.is_spent = False

    def apply(
        self, streams: Mapping[str, SegmentEvents], position: OffsetsByStream, backlogs: BySegment, ends: Ends
    ) -> None:
        """Move ``ends`` back as far as the limits want; ``backlogs`` are bytes behind ``position``.

        May be called again for the segments that the batch comes to next, with what is left of the limits. That is for
        whole events only: every segment with a backlog must get one, which the first call allows itself.
        """
        self._streams = streams
        left = [limit for limit in (self._bytes_left, self._events_left) if limit is not None]
        if self._has_taken and left and min(left) < sum(1 for backlog in backlogs.values() if backlog):
            ends.update({name: dict(cut) for name, cut in position.items()})
            self.is_spent = True
            return
        self._has_taken = True
        if self._bytes_left is not None:
            self._limit_bytes(self._bytes_left, position, backlogs, ends)
            self.is_spent |= sum(backlogs.values()) >= self._bytes_left
            self._bytes_left -= min(self._bytes_left, sum(backlogs.values()))
        if self._events_left is not None:
            taken = self._limit_events(self._events_left, position, backlogs, ends)
            self.is_spent |= taken >= self._events_left
            self._events_left -= min(self._events_left, taken)

    def holds_back(
        self, streams: Mapping[str, SegmentEvents], position: OffsetsByStream, backlogs: BySegment, now_s: float
    ) -> bool:
        """Whether there are too few events for a micro-batch, which may wait; by a monotonic clock in seconds."""
        if self._events_min is None or not any(backlogs.values()):
            self._held_since_s = None
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
        if now_s - self._held_since_s < self._delay_max_s and self._are_fewer(
            self._events_min, streams, position, backlogs
        ):
            return True
        self._held_since_s = None
        return False

    def _are_fewer(
        self, limit: int, streams: Mapping[str, SegmentEvents], position: OffsetsByStream, backlogs: BySegment
    ) -> bool:
        """Whether there are fewer events than this; not where nobody knows."""
        if sum(backlogs.values()) < limit * event_header_bytes:
            return True
        self._streams = streams
        about = self._about(self._spans(position, backlogs))
        return about is not None and sum(found.events for found in about.values()) < limit

    def _limit_bytes(self, limit: int, position: OffsetsByStream, backlogs: BySegment, ends: Ends) -> None:
        wanted = {
            (name, item): (position[name][item], size, ends[name][item])
            for (name, item), size in share(limit, backlogs).items()
            if size < ends[name][item] - position[name][item]
        }
        for name, some in _by_stream(wanted).items():
            ends[name].update(self._streams[name].after_bytes_of_many(some))

    def _limit_events(self, limit: int, position: OffsetsByStream, backlogs: BySegment, ends: Ends) -> int:
        """Returns the events of the backlogs, of which at most ``limit`` are taken; 0 where they are not counted."""
        counts = self._counted(limit, position, backlogs)
        if counts is None or sum(counts.values()) <= limit:
            return sum(counts.values()) if counts is not None else 0
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
        return sum(counts.values())

    def _counted(self, limit: int, position: OffsetsByStream, backlogs: BySegment) -> BySegment | None:
        """Events of each backlog: counted, or about right where there are far more than the limit. None: no index."""
        spans = self._spans(position, backlogs)
        about = self._about(spans)
        if about is None:
            return None
        counts = {key: found.events for key, found in about.items()}
        doubtful = [key for key, found in about.items() if not found.is_exact]
        if sum(counts.values()) > limit * certain_excess:
            # An index that knows nothing of a segment yet says 1, which is no share of it.
            doubtful = [key for key in doubtful if counts[key] == 1 and not self._has_read_ahead(*key)]
        for name, some in _by_stream({key: spans[key] for key in doubtful}).items():
            for item, counted in self._streams[name].count_of_many(some).items():
                counts[name, item] = counts[name, item] if counted is None else counted
        return counts

    @staticmethod
    def _spans(position: OffsetsByStream, backlogs: BySegment) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (name, item): (position[name][item], position[name][item] + backlog)
            for (name, item), backlog in backlogs.items()
        }

    def _about(self, spans: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], EventCount] | None:
        """Events of each span, from what is asked for together; None without an index."""
        for name, some in _by_stream(spans).items():
            self._streams[name].prepare(some)
        about: dict[tuple[str, int], EventCount] = {}
        for name, some in _by_stream(spans).items():
            for item, found in self._streams[name].estimated_of_many(some).items():
                if found is None:
                    self._warn_unlimited(name)
                    return None
                about[name, item] = found
        return about

    def _has_read_ahead(self, name: str, segment_id: int) -> bool:
        return self._streams[name].has_read_ahead(segment_id)

    def _warn_unlimited(self, name: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "limits of events per trigger have no effect: the store of %s keeps no index of event boundaries "
                "(Pravega does from version 0.14 on); use approx_bytes_per_trigger",
                name,
            )


def _by_stream(items: Mapping[tuple[str, int], T]) -> dict[str, dict[int, T]]:
    grouped: dict[str, dict[int, T]] = {}
    for (name, item), value in items.items():
        grouped.setdefault(name, {})[item] = value
    return grouped
