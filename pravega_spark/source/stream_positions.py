"""Moves the positions of a stream's readers over scaling, truncation and seal, and finds boundaries of events."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pravega_common.errors import (
    DataCorruption,
    InvalidArgument,
    NotFound,
    SegmentNotFound,
    SegmentTruncated,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
from pravega_common.names import segment_epoch, segment_name
from pravega_spark.gateway.contract import Boundaries, StreamGateway
from pravega_spark.source.data_loss import data_loss, replaced
from pravega_spark.source.event_walk import Walked, walk
from pravega_spark.source.range_planner import Span
from pravega_spark.source.read_bound import ReadBound, ended_at
from pravega_streams.segment.event_index import EventCount, ReadTarget

located_slack_bytes: Final = (0, 128 * 1024, 1024 * 1024, 16 * 1024 * 1024, 128 * 1024 * 1024)
"""How far before an offset a boundary is asked for, until one is found that is not behind it."""
located_excess_bytes_max: Final = 256 * 1024
"""How far behind a limit of bytes a known boundary may lie; a farther one is not taken, and events are stepped over."""
events_max: Final = 2**62
walk_bytes_max: Final = 64 * 1024 * 1024
"""Stepped over event by event at once. Boundaries of an index are 64 KiB apart, but of a transaction it has the end."""

_log = logging.getLogger(__name__)


class StreamPositions:
    """One stream as the source sees it. Every call asks the gateway again, but for boundaries: see ``forget_index``."""

    def __init__(self, gateway: StreamGateway, scope: str, stream: str, *, fail_on_data_loss: bool) -> None:
        self._gateway = gateway
        self.scope = scope
        self.stream = stream
        self._fails = fail_on_data_loss
        # Of sealed segments behind those that are read, which do not change: a handful of numbers each.
        self._sealed: dict[int, SegmentInfo] = {}
        self._successors: dict[int, list[int]] = {}
        self._counts: dict[int, tuple[int, int, int | None]] = {}
        # Of segments that were asked for boundaries since a plan began: each costs several calls.
        self._index: dict[int, Boundaries | None] = {}

    def bound(self, cut: SegmentOffsets) -> ReadBound:
        """``InvalidArgument`` for a cut with segments that the stream never had."""
        head = self._gateway.head_cut(self.scope, self.stream)
        try:
            before = self._gateway.segments_between(self.scope, self.stream, head, cut)
        except (InvalidArgument, UnknownOutcome):  # It lies before what is left, at least in part: from the beginning.
            before = self._gateway.segments_between(self.scope, self.stream, {}, cut)
        return ReadBound(cut, before)

    def advanced(
        self, cut: SegmentOffsets, known: Mapping[int, SegmentInfo] | None = None
    ) -> tuple[SegmentOffsets, dict[int, SegmentInfo]]:
        """The same position with segments that are read to their end replaced by their successors.

        Also says what is known of each segment of the result (``known`` is not asked for again). A segment stays while
        one of its successors has a predecessor that is not read: the result always covers the key space.
        """
        moved, infos = self._present(cut, known)
        while True:
            ended = {item for item, offset in moved.items() if infos[item].is_sealed and offset >= infos[item].length}
            following = {item: self._gateway.successors(self.scope, self.stream, item) for item in sorted(ended)}
            ready = {item for item in ended if _all_done(following[item], ended)}
            if not ready:
                return moved, infos
            added = {successor.segment.segment_id: 0 for item in ready for successor in following[item]}
            kept = {item: offset for item, offset in moved.items() if item not in ready}
            moved, infos = self._present({**kept, **added}, infos)

    def _present(
        self, cut: SegmentOffsets, known: Mapping[int, SegmentInfo] | None = None
    ) -> tuple[SegmentOffsets, dict[int, SegmentInfo]]:
        """The cut without lost data, which is an error or skipped.

        A deleted stream that may be missed has nothing to read until it is created again, and then from its head on.
        """
        moved = dict(cut)
        infos: dict[int, SegmentInfo] = {}
        gone: set[int] = set()
        found = self._infos([item for item in cut if item not in (known or {})])
        for item, offset in cut.items():
            info = (known or {}).get(item) or found.get(item)
            if info is None:
                self._report(self._gone(item, offset))
                gone.add(item)
                continue
            if not info.start_offset <= offset <= info.length:
                self._report(self._missed(item, offset, info))
                moved[item] = info.start_offset
            infos[item] = info
        if not gone:
            return moved, infos
        try:
            return self._present(self._around(moved, gone), infos)
        except NotFound:
            _log.warning("stream %s/%s is deleted: nothing is read until it is created again", self.scope, self.stream)
            return dict(cut), ended_at(cut)

    def _around(self, cut: SegmentOffsets, gone: set[int]) -> SegmentOffsets:
        """The cut with its deleted segments replaced by what the head of the stream has for their keys.

        The head itself when the stream does not know the segments: it was created again.
        """
        head = self._gateway.head_cut(self.scope, self.stream)
        ranges = {item: self._range(item) for item in {*cut, *head}}
        if not all(ranges.values()):
            return head
        lost = [ranges[item] for item in gone]
        made = {item: offset for item, offset in cut.items() if item not in gone}
        for item, offset in head.items():
            if item not in made and any(_overlap(ranges[item], other) for other in lost):
                made[item] = offset
        return made

    def later(self, known: Mapping[int, SegmentInfo]) -> dict[int, SegmentInfo]:
        """The segments behind the sealed ones of a position, up to the tail; fewer where some are deleted meanwhile.

        A sealed one is asked for once, so what was truncated from it since is not seen.
        """
        for item in known:
            self._sealed.pop(item, None)
            self._counts.pop(item, None)
        found: dict[int, SegmentInfo] = {}
        sealed = {item: info for item, info in known.items() if info.is_sealed}
        try:
            while sealed:
                following = {item for ended in sealed for item in self._following(ended)}
                new = [item for item in following if item not in found and item not in known]
                asked = self._infos([item for item in new if item not in self._sealed])
                infos = {item: info for item in new if (info := self._sealed.get(item) or asked.get(item)) is not None}
                found.update(infos)
                sealed = {item: info for item, info in infos.items() if info.is_sealed}
                self._sealed.update(sealed)
        except NotFound:
            _log.info("stream %s/%s: what is left to read is not all known", self.scope, self.stream)
        return found

    def _infos(self, segment_ids: list[int]) -> dict[int, SegmentInfo]:
        """Ask for the state of segments; those that are deleted are left out."""
        return self._gateway.segment_infos(self.scope, self.stream, segment_ids) if segment_ids else {}

    def _following(self, segment_id: int) -> list[int]:
        found = self._successors.get(segment_id)
        if found is None:
            successors = self._gateway.successors(self.scope, self.stream, segment_id)
            found = [item.segment.segment_id for item in successors]
            if found:
                self._successors[segment_id] = found
        return found

    def _range(self, segment_id: int) -> SegmentRange | None:
        try:
            segments = self._gateway.epoch_segments(self.scope, self.stream, segment_epoch(segment_id))
        except (InvalidArgument, NotFound):
            return None
        return next((item for item in segments if item.segment_id == segment_id), None)

    def _missed(self, segment_id: int, wanted: int, info: SegmentInfo) -> DataCorruption:
        """The error of an offset that a segment does not have."""
        if wanted > info.length:
            found = f"it has {info.length} bytes now"
            return replaced(self.scope, self.stream, segment_id, wanted, found)
        return data_loss(self.scope, self.stream, segment_id, wanted, info.start_offset)

    def _gone(self, segment_id: int, wanted: int) -> DataCorruption:
        """The error of a segment that is not there: truncated, or never one of the stream of this name."""
        if self._range(segment_id) is None and self._gateway.stream_exists(self.scope, self.stream):
            return replaced(self.scope, self.stream, segment_id, wanted, "it is not one of its segments")
        return data_loss(self.scope, self.stream, segment_id, wanted, None)

    def _report(self, error: DataCorruption) -> None:
        if self._fails:
            raise error
        _log.warning("%s", error)

    def spans(self, start: SegmentOffsets, end: SegmentOffsets) -> list[Span]:
        """The spans between any two cuts, also where segments begin or end between them.

        What is gone at the time of planning is an error or left out, as ``fail_on_data_loss`` says.
        """
        spans = []
        between = sorted(self._gateway.segments_between(self.scope, self.stream, start, end))
        wanted = [item for item in between if start.get(item, 0) != end.get(item)]
        infos = self._infos(wanted)
        for item in wanted:
            first, last, info = start.get(item, 0), end.get(item), infos.get(item)
            if info is None:
                self._report(self._gone(item, first))
                continue
            last = info.length if last is None else last
            if max(first, last) > info.length:
                self._report(self._missed(item, max(first, last), info))
                last = info.length
            if first < info.start_offset and first < last:
                self._report(self._missed(item, first, info))
                first = info.start_offset
            if first < last:
                spans.append(Span(self.scope, self.stream, item, first, last))
        return spans

    def locate(self, segment_id: int, offset: int, end: int) -> int:
        """The first known event boundary at or after ``offset``, at most ``end``; ``end`` where none is known.

        Also of a segment that is deleted meanwhile: who reads the range says so.
        """
        if offset >= end:
            return end
        try:
            return min(end, self._gateway.locate_offset(self.scope, self.stream, segment_id, offset))
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

        It is the next one that the index knows. Where that is far (inside a large transaction, and where the store
        keeps no index), events are stepped over from the last one it knows.
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

    # By events and by time

    def events_between(self, segment_id: int, start: int, end: int) -> int | None:
        """About how many events lie between two positions; None where the store keeps no index or none any more."""
        if start >= end:
            return 0
        first, last, counted = self._counts.get(segment_id, (0, 0, None))
        if (first, last) == (start, end):
            return counted
        try:
            boundaries = self._boundaries(segment_id)
            counted = None if boundaries is None else boundaries.events_between(start, end).events
        except (SegmentNotFound, SegmentTruncated):
            return None
        if segment_id in self._sealed:
            self._counts[segment_id] = (start, end, counted)
        return counted

    def estimated_events(self, segment_id: int, start: int, end: int) -> EventCount | None:
        """The same, with whether it is exact, and at least one if there are any bytes."""
        if start >= end:
            return EventCount(0, is_exact=True)
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            return None
        counted = boundaries.events_between(start, end)
        return EventCount(max(1, counted.events), counted.is_exact)

    def count_events(self, segment_id: int, start: int, end: int) -> int | None:
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
            counted = boundaries.events_between(first.offset, end)
            if counted.is_exact:
                return first.events + counted.events
            ahead = boundaries.advance(first.offset, max(0, counted.events))
            known = ahead if ahead.is_exact and ahead.offset <= end else ReadTarget(first.offset, 0, is_exact=True)
            last = self._walk(segment_id, known.offset, end, events_max)
        except SegmentTruncated:
            return max(1, boundaries.events_between(start, end).events)
        if last.offset < end:
            return max(1, first.events + counted.events)
        return first.events + known.events + last.events

    def after_events(self, segment_id: int, offset: int, end: int, events_max: int) -> int:
        """The end of ``events_max`` events after ``offset``, at most ``end``; ``end`` where the store keeps no index.

        Exact unless the index is far behind the segment, then less. The index leads to the boundary below, and the
        rest is stepped over event by event: two stretches of the index, each about 64 KiB, or what lies between
        ``offset`` and the answer in the transactions at both ends.
        """
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            return end
        try:
            known = min(end, boundaries.offset_at_or_after(offset))
            at = self._walk(segment_id, offset, known, events_max)
            left = events_max - at.events
            if at.offset < known or left == 0:
                return at.offset
            ahead = boundaries.advance(known, left)
            if ahead.is_exact and ahead.events <= left and ahead.offset <= end:
                known, left = ahead.offset, left - ahead.events
            rest = self._walk(segment_id, known, end, left)
        except SegmentTruncated as error:
            return min(end, error.start_offset)
        return rest.offset

    def cut_at_time(self, time_ms: int, *, as_end: bool) -> SegmentOffsets:
        """From the head on over scaling, as far as events were written before a time.

        As a start nothing that was written at the time or later lies before it, as an end everything from before does:
        in between lies at most a stretch of the index in each segment. ``UnsupportedOperation`` without an index.
        """
        cut, infos = self.advanced(self._gateway.head_cut(self.scope, self.stream))
        while True:
            taken = {item: max(offset, self._offset_at_time(item, time_ms, as_end)) for item, offset in cut.items()}
            moved, infos = self.advanced(taken, {} if taken != cut else infos)
            if moved.keys() == cut.keys():
                return moved
            cut = moved

    def _offset_at_time(self, segment_id: int, time_ms: int, as_end: bool) -> int:
        boundaries = self._boundaries(segment_id)
        if boundaries is None:
            raise UnsupportedOperation(
                f"start_time and end_time need to know when events were written, and the store of {self.scope}/"
                f"{self.stream} keeps no index of that (Pravega does from version 0.14 on); use start_stream_cut and "
                "end_stream_cut"
            )
        return boundaries.offset_at_time(time_ms) if as_end else boundaries.offset_before_time(time_ms)

    def forget_index(self) -> None:
        """Forget the boundaries that were asked for: a plan must know those that were written before it began."""
        self._index.clear()

    def _boundaries(self, segment_id: int) -> Boundaries | None:
        if segment_id not in self._index:
            try:
                self._index[segment_id] = self._gateway.boundaries(self.scope, self.stream, segment_id)
            except UnsupportedOperation:
                self._index[segment_id] = None
        return self._index[segment_id]

    def _walk(self, segment_id: int, start: int, end: int, events_max: int, bytes_max: int = walk_bytes_max) -> Walked:
        if start >= end or events_max <= 0:
            return Walked(start, 0)
        source = self._gateway.open_range(segment_name(self.scope, self.stream, segment_id), start, end)
        try:
            return walk(source, events_max, min(bytes_max, walk_bytes_max))
        finally:
            source.close()


def _all_done(successors: list[Successor], ended: set[int]) -> bool:
    return bool(successors) and all(set(item.predecessors) <= ended for item in successors)


def _overlap(first: SegmentRange | None, second: SegmentRange | None) -> bool:
    if first is None or second is None:
        return False
    return first.key_low < second.key_high and second.key_low < first.key_high
