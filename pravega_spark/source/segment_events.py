"""Finds and counts the events of a stream's segments: by the store's index, and by stepping over events.

``prepare`` and the methods that take many segments cost a few round trips a store. What they learn is kept until
``forget``, so that the questions about single segments that follow cost nothing, or little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pravega_common.errors import SegmentNotFound, SegmentTruncated, UnsupportedOperation
from pravega_common.names import segment_name
from pravega_spark.gateway.contract import Boundaries, StreamGateway
from pravega_spark.source.event_walk import Walked, walk
from pravega_spark.source.known_events import KnownEvents
from pravega_spark.source.known_heads import KnownHeads
from pravega_streams.segment.event_index import EventCount, ReadTarget

located_slack_bytes: Final = (0, 128 * 1024, 1024 * 1024, 16 * 1024 * 1024, 128 * 1024 * 1024)
"""How far before an offset a boundary is asked for, until one is found that is not behind it."""
located_excess_bytes_max: Final = 256 * 1024
"""How far behind a limit of bytes a known boundary may lie; a farther one is not taken, and events are stepped over."""
events_max: Final = 2**62
walk_bytes_max: Final = 64 * 1024 * 1024
"""Stepped over event by event at once. Boundaries of an index are 64 KiB apart, but of a transaction it has the end."""
prepared_bytes_max: Final = 16 * 1024 * 1024
"""Bytes that are read ahead of one plan, from all segments of a stream together."""
prepared_segment_bytes_max: Final = 64 * 1024
"""Bytes that are read ahead from one segment: a stretch of the index."""


class SegmentEvents:
    """The events of one stream."""

    def __init__(self, gateway: StreamGateway, scope: str, stream: str) -> None:
        self._gateway = gateway
        self._scope = scope
        self._stream = stream
        self._index: dict[int, Boundaries | None] = {}
        self._located: dict[tuple[int, int], int] = {}
        self._known: list[KnownHeads] = []

    def forget(self) -> None:
        """Forget what was asked for: a plan must know the boundaries that were written before it began."""
        self._index.clear()
        self._located.clear()
        self._known.clear()

    # Many segments

    def prepare(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Read what ranges begin with, all of them together; each from a boundary of events to another one."""
        wanted = {item: (start, end) for item, (start, end) in ranges.items() if start < end}
        if len(wanted) < 2:  # A question about one is asked when it comes.
            return
        share = min(prepared_segment_bytes_max, prepared_bytes_max // len(wanted))
        heads = {item: (start, min(end, start + share)) for item, (start, end) in wanted.items()}
        data = self._gateway.read_heads(self._scope, self._stream, heads)
        self._known.append(KnownHeads.of({item: start for item, (start, _) in heads.items()}, data))

    def prepare_index(self, segment_ids: list[int]) -> None:
        """Ask for the boundaries of these segments together."""
        unknown = [item for item in segment_ids if item not in self._index]
        if len(unknown) > 1:
            self._index.update(self._gateway.boundaries_of_many(self._scope, self._stream, unknown))

    def estimated_of_many(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, EventCount | None]:
        """``estimated`` of several segments: start and end of each. What was read ahead is asked of all at once."""
        ahead = self._estimated_ahead(spans)
        found: dict[int, EventCount | None] = {}
        for item, span in spans.items():
            about = ahead.get(item)
            is_enough = about is not None and (about.is_exact or item not in self._index)
            found[item] = about if is_enough else self._estimated(item, span, about)
        return found

    def events_between_of_many(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int | None]:
        """``events_between`` of several segments; those that need an index are asked about together."""
        some = {item: span for item, span in spans.items() if span[0] < span[1]}
        ahead = self._estimated_ahead(some)
        self.prepare_index([item for item in some if item not in ahead])
        found: dict[int, int | None] = {}
        for item, span in spans.items():
            about = ahead.get(item)
            if about is not None and (about.is_exact or item not in self._index):
                found[item] = about.events
            else:
                found[item] = self.events_between(item, *span)
        return found

    def after_bytes_of_many(self, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
        """``after_bytes`` of several segments: offset, bytes, and end of each."""
        self.prepare({item: (start, min(end, start + size)) for item, (start, size, end) in wanted.items()})
        asked = {item: start + size for item, (start, size, end) in wanted.items() if start + size < end}
        known = self._known_boundaries(asked)
        unknown = {item: offset for item, offset in asked.items() if item not in known}
        if len(unknown) > 1:
            located = self._gateway.locate_offsets(self._scope, self._stream, unknown)
            self._located.update({(item, unknown[item]): offset for item, offset in located.items()})
        near = {item: offset for item, offset in known.items() if offset - asked[item] <= located_excess_bytes_max}
        return {
            item: min(end, near[item]) if item in near else self.after_bytes(item, start, size, end)
            for item, (start, size, end) in wanted.items()
        }

    def after_events_of_many(self, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, int | None]:
        """``after_events`` of several segments: offset, end, and number of events of each."""
        known = self._known_walks(wanted)
        far = [item for item in wanted if item not in known]
        self.prepare_index(far)
        places = {item: self._below(item, *wanted[item]) for item in far}
        self.prepare({item: (place.offset, wanted[item][1]) for item, place in places.items() if place is not None})
        return {
            item: known[item].offset if item in known else self.after_events(item, *wanted[item]) for item in wanted
        }

    def count_of_many(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, int | None]:
        """``count`` of several segments: start and end of each."""
        self.prepare_index(list(wanted))
        tails = {}
        for item, (start, end) in wanted.items():
            boundaries = self._boundaries(item)
            if boundaries is not None:
                tails[item] = (_counted_to(boundaries, boundaries.offset_at_or_after(start), end).offset, end)
        self.prepare(tails)
        return {item: self.count(item, *span) for item, span in wanted.items()}

    # Boundaries of one segment

    def locate(self, segment_id: int, offset: int, end: int) -> int:
        """The first known event boundary at or after ``offset``, at most ``end``; ``end`` where none is known.

        Also of a segment that is deleted meanwhile: who reads the range says so.
        """
        if offset >= end:
            return end
        known = self._known_boundary(segment_id, offset)
        if known is None:
            known = self._located.get((segment_id, offset))
        if known is not None:
            return min(end, known)
        try:
            return min(end, self._gateway.locate_offset(self._scope, self._stream, segment_id, offset))
        except (UnsupportedOperation, SegmentNotFound):
            return end
        except SegmentTruncated as error:
            return min(end, error.start_offset)

    def boundary_before(self, segment_id: int, offset: int, start: int) -> int:
        """A known event boundary at or before ``offset``, at least ``start``, which is one."""
        for slack_bytes in located_slack_bytes:
            located = (
                start if offset - slack_bytes <= start else self.locate(segment_id, offset - slack_bytes, offset + 1)
            )
            if located <= offset:
                return max(start, located)
        return start

    def after_bytes(self, segment_id: int, offset: int, wanted_bytes: int, end: int) -> int:
        """A boundary about ``wanted_bytes`` after ``offset``, which is one; at most ``end``.

        It is the next one that the index knows, or the next of all where the bytes were read ahead. Where the index
        knows none near (inside a large transaction, and where the store keeps no index), events are stepped over from
        the last one it knows.
        """
        wanted = offset + wanted_bytes
        located = self.locate(segment_id, wanted, end)
        if located - wanted <= located_excess_bytes_max:
            return located
        known = self.boundary_before(segment_id, wanted, offset)
        try:
            return self._walk(segment_id, known, located, events_max, wanted - known).offset
        except SegmentTruncated as error:
            return min(end, error.start_offset)

    # Events of one segment

    def events_between(self, segment_id: int, start: int, end: int) -> int | None:
        """About how many events lie between two positions; None where the store keeps no index or none any more."""
        try:
            counted = self.estimated(segment_id, start, end)
        except (SegmentNotFound, SegmentTruncated):
            return None
        return None if counted is None else counted.events

    def estimated(self, segment_id: int, start: int, end: int) -> EventCount | None:
        """The same, with whether it is exact, and at least one if there are any bytes.

        Of what was read ahead all is known; where that is only the beginning, it stands for the rest.
        """
        return self.estimated_of_many({segment_id: (start, end)})[segment_id]

    def _estimated(self, segment_id: int, span: tuple[int, int], ahead: EventCount | None) -> EventCount | None:
        """Count the events of a span by the index, or return ``ahead`` without one."""
        if span[0] >= span[1]:
            return EventCount(0, is_exact=True)
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            return ahead
        counted = boundaries.events_between(*span)
        return EventCount(max(1, counted.events), counted.is_exact)

    def _estimated_ahead(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, EventCount]:
        """Count the events of each span that has bytes by what was read ahead, exactly where that is possible."""
        found: dict[int, EventCount] = {}
        wanted = {item: span for item, span in spans.items() if span[0] < span[1]}
        for heads in self._known:
            for item, about in heads.estimated(wanted).items():
                if about.is_exact or item not in found:
                    found[item] = about
        return found

    def has_read_ahead(self, segment_id: int) -> bool:
        return any(segment_id in heads for heads in self._known)

    def count(self, segment_id: int, start: int, end: int) -> int | None:
        """The same, but exact unless the index is far behind the segment, and at least one if there are any bytes.

        What lies between ``start``, ``end`` and the boundaries that the index knows is counted event by event.
        """
        if start >= end:
            return 0
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            return None
        try:
            first = self._walk(segment_id, start, min(end, boundaries.offset_at_or_after(start)), events_max)
            known = _counted_to(boundaries, first.offset, end)
            last = self._walk(segment_id, known.offset, end, events_max)
        except SegmentTruncated:
            return max(1, boundaries.events_between(start, end).events)
        if last.offset < end:
            return max(1, first.events + boundaries.events_between(first.offset, end).events)
        return first.events + known.events + last.events

    def after_events(self, segment_id: int, offset: int, end: int, count: int) -> int | None:
        """The end of ``count`` events after ``offset``, at most ``end``; None where the store keeps no index.

        Exact unless the index is far behind the segment, then less. The index leads to the boundary below, and the
        rest is stepped over event by event: two stretches of the index, each about 64 KiB, or what lies between
        ``offset`` and the answer in the transactions at both ends. What was read ahead needs no index.
        """
        if (known := self._known_walk(segment_id, offset, end, count)) is not None:
            return known.offset
        try:
            below = self._below(segment_id, offset, end, count)
            if below is None:
                return None
            return self._walk(segment_id, below.offset, end, count - below.events).offset
        except SegmentTruncated as error:
            return min(end, error.start_offset)

    def offset_at_time(self, segment_id: int, time_ms: int, *, as_end: bool) -> int:
        """The boundary of a time as ``EventIndex`` has it; ``UnsupportedOperation`` without an index."""
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            raise UnsupportedOperation(
                f"start_time and end_time need to know when events were written, and the store of {self._scope}/"
                f"{self._stream} keeps no index of that (Pravega does from version 0.14 on); use start_stream_cut and "
                "end_stream_cut"
            )
        return boundaries.offset_at_time(time_ms) if as_end else boundaries.offset_before_time(time_ms)

    def _below(self, segment_id: int, offset: int, end: int, count: int) -> Walked | None:
        """The farthest boundary that the index leads to with at most ``count`` events after ``offset``, and these."""
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            return None
        known = min(end, boundaries.offset_at_or_after(offset))
        at = self._walk(segment_id, offset, known, count)
        left = count - at.events
        if at.offset < known or left == 0:
            return Walked(at.offset, count)
        ahead = boundaries.advance(known, left)
        if ahead.is_exact and ahead.events <= left and ahead.offset <= end:
            return Walked(ahead.offset, at.events + ahead.events)
        return Walked(known, at.events)

    def _known_walks(self, wanted: Mapping[int, tuple[int, int, int]]) -> dict[int, Walked]:
        """The steps over events that were read ahead: start, end, and number of events of each segment."""
        found: dict[int, Walked] = {}
        for heads in self._known:
            found = {**heads.walked(wanted), **found}
        return found

    def _known_boundaries(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """The next boundary of each segment where that was read ahead."""
        found: dict[int, int] = {}
        for heads in self._known:
            found = {**heads.at_or_after(offsets), **found}
        return found

    def _known_events(self, segment_id: int) -> Iterator[KnownEvents]:
        for heads in self._known:
            if (known := heads.of_segment(segment_id)) is not None:
                yield known

    def _known_walk(self, segment_id: int, start: int, end: int, count: int) -> Walked | None:
        found = (known.walked(start, end, count) for known in self._known_events(segment_id))
        return next((item for item in found if item is not None), None)

    def _known_boundary(self, segment_id: int, offset: int) -> int | None:
        found = (known.at_or_after(offset) for known in self._known_events(segment_id))
        return next((item for item in found if item is not None), None)

    def _boundaries(self, segment_id: int) -> Boundaries | None:
        if segment_id not in self._index:
            try:
                self._index[segment_id] = self._gateway.boundaries(self._scope, self._stream, segment_id)
            except UnsupportedOperation:
                self._index[segment_id] = None
        return self._index[segment_id]

    def _walk(self, segment_id: int, start: int, end: int, count: int, bytes_max: int = walk_bytes_max) -> Walked:
        if start >= end or count <= 0:
            return Walked(start, 0)
        if bytes_max >= walk_bytes_max and (known := self._known_walk(segment_id, start, end, count)) is not None:
            return known
        source = self._gateway.open_range(segment_name(self._scope, self._stream, segment_id), start, end)
        try:
            return walk(source, count, min(bytes_max, walk_bytes_max))
        finally:
            source.close()


def _counted_to(boundaries: Boundaries, first: int, end: int) -> ReadTarget:
    """The farthest boundary up to ``end`` with a known number of events behind ``first``, which is one."""
    if first >= end:
        return ReadTarget(end, 0, is_exact=True)
    counted = boundaries.events_between(first, end)
    if counted.is_exact:
        return ReadTarget(end, counted.events, is_exact=True)
    ahead = boundaries.advance(first, max(0, counted.events))
    return ahead if ahead.is_exact and ahead.offset <= end else ReadTarget(first, 0, is_exact=True)
