"""Moves the positions of a stream's readers over scaling, truncation and seal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from pravega_common.errors import (
    DataCorruption,
    InvalidArgument,
    NotFound,
    SegmentError,
    UnknownOutcome,
)
from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
from pravega_common.names import segment_epoch
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.source.data_loss import data_loss, replaced
from pravega_spark.source.range_planner import Span
from pravega_spark.source.read_bound import ReadBound, ended_at
from pravega_spark.source.segment_events import SegmentEvents
from pravega_spark.source.segment_history import SegmentHistory
from pravega_spark.source.uncovered_keys import UncoveredKeys

walks_max: Final = 3
"""How often a time is looked for at most, from the head on, when the stream is truncated meanwhile."""

_log = logging.getLogger(__name__)


class StreamPositions:
    """One stream as the source sees it. Every call asks the gateway again, but ``events`` keeps what it learnt."""

    def __init__(self, gateway: StreamGateway, scope: str, stream: str, *, fail_on_data_loss: bool) -> None:
        self._gateway = gateway
        self.scope = scope
        self.stream = stream
        self._fails = fail_on_data_loss
        # Of sealed segments at and behind the last position, which do not change: a handful of numbers each.
        self._sealed: dict[int, SegmentInfo] = {}
        self._successors: dict[int, list[int]] = {}
        self._counts: dict[int, tuple[tuple[int, int], int | None]] = {}
        self.events = SegmentEvents(gateway, scope, stream)

    def head(self) -> SegmentOffsets:
        """The first position that is still there."""
        return self._gateway.head_cut(self.scope, self.stream)

    def tail(self) -> SegmentOffsets:
        """The present end."""
        return self._gateway.tail_cut(self.scope, self.stream)

    def bound(self, cut: SegmentOffsets) -> ReadBound:
        """``InvalidArgument`` for a cut with segments that the stream never had."""
        head = self.head()
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
        one of its successors has a predecessor that stays: the result always covers the key space, each key once.
        """
        moved, infos = self._present(cut, known)
        while True:
            ended = {item for item, offset in moved.items() if infos[item].is_sealed and offset >= infos[item].length}
            following = {item: self._gateway.successors(self.scope, self.stream, item) for item in sorted(ended)}
            ready = _ready(following)
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
        So is one that has less of a segment than was read: no segment of it was read, also where one has as much.
        """
        moved = dict(cut)
        infos: dict[int, SegmentInfo] = {}
        gone: set[int] = set()
        is_another = False
        history = self._history()
        found = self._infos([item for item in cut if item not in (known or {})])
        for item, offset in cut.items():
            info = (known or {}).get(item) or found.get(item)
            if info is None:
                self._report(self._gone(item, offset, history))
                gone.add(item)
                continue
            if not info.start_offset <= offset <= info.length:
                self._report(self._missed(item, offset, info))
                moved[item] = info.start_offset
                is_another |= offset > info.length
            infos[item] = info
        if not gone and not is_another:
            return moved, infos
        try:
            if is_another:
                return self._present(history.head)
            return self._present(self._around(moved, gone, history), infos)
        except NotFound:
            _log.warning("stream %s/%s is deleted: nothing is read until it is created again", self.scope, self.stream)
            return dict(cut), ended_at(cut)

    def _history(self) -> SegmentHistory:
        return SegmentHistory(self._gateway, self.scope, self.stream)

    def deleted(self, segment_ids: Iterable[int]) -> set[int]:
        """Those of some segments that are not there any more."""
        asked = set(segment_ids)
        return asked - self._infos(sorted(asked)).keys()

    def in_place_of(self, gone: set[int], cut: SegmentOffsets) -> SegmentOffsets:
        """Return what the head has for the keys of deleted segments of a cut; ``NotFound`` without a stream."""
        made = self._around(cut, gone, self._history())
        return {item: offset for item, offset in made.items() if item not in cut}

    def _around(self, cut: SegmentOffsets, gone: set[int], history: SegmentHistory) -> SegmentOffsets:
        """The cut with its deleted segments replaced by what the head of the stream has for their keys.

        These are the keys that the others do not have: of a deleted segment nothing may be on record any more. The
        head itself when the stream does not know the segments: it was created again.
        """
        head = history.head
        if any(map(history.is_foreign, cut)):
            return head
        made = {item: offset for item, offset in cut.items() if item not in gone}
        ranges = history.ranges({*made, *head})
        lost = UncoveredKeys([ranges[item] for item in made])
        for item, offset in head.items():
            if item not in made and lost.overlap(ranges[item]):
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
        self._forget_all_but({*known, *found})
        return found

    def _forget_all_but(self, segment_ids: set[int]) -> None:
        """Forget the segments that a position has passed: a query goes on for as long as its stream is scaled."""
        self._sealed = {item: info for item, info in self._sealed.items() if item in segment_ids}
        self._successors = {item: found for item, found in self._successors.items() if item in segment_ids}
        self._counts = {item: count for item, count in self._counts.items() if item in segment_ids}

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

    def check_covers_keys(self, cut: SegmentOffsets) -> None:
        """``InvalidArgument`` for a cut that leaves out keys; one with segments that are not known is seen later."""
        known: dict[int, SegmentRange] = {}
        try:
            for epoch in sorted({segment_epoch(item) for item in cut}):
                found = self._gateway.epoch_segments(self.scope, self.stream, epoch)
                known.update((item.segment_id, item) for item in found)
        except (InvalidArgument, NotFound):
            return
        if not cut.keys() <= known.keys():
            return
        if gaps := UncoveredKeys([known[item] for item in cut]).gaps:
            raise InvalidArgument(
                f"the stream cut to start at has no segment of {self.scope}/{self.stream} for the keys from "
                f"{gaps[0][0]:g} on, so their events would never be read; take one that was written as a whole"
            )

    def _missed(self, segment_id: int, wanted: int, info: SegmentInfo) -> DataCorruption:
        """The error of an offset that a segment does not have."""
        if wanted > info.length:
            found = f"it has {info.length} bytes now"
            return replaced(self.scope, self.stream, segment_id, wanted, found)
        return data_loss(self.scope, self.stream, segment_id, wanted, info.start_offset)

    def _gone(self, segment_id: int, wanted: int, history: SegmentHistory) -> DataCorruption:
        """The error of a segment that is not there: truncated, or never one of the stream of this name."""
        with suppress(NotFound):  # The stream is deleted.
            if history.is_foreign(segment_id):
                return replaced(self.scope, self.stream, segment_id, wanted, "it is not one of its segments")
        return data_loss(self.scope, self.stream, segment_id, wanted, None)

    def _report(self, error: DataCorruption) -> None:
        if self._fails:
            raise error
        _log.warning("%s", error)

    def written(self, spans: list[Span]) -> list[Span]:
        """The spans of a micro-batch that was planned before; none where one ends behind the end of its segment.

        Then another stream has the name, or the cluster another stream: an error, unless data may be missed. To read
        such a range is to wait for it, in every attempt. The next plan begins at the head of that stream.
        """
        with suppress(NotFound):  # Deleted: the reader of the span says so.
            infos = self._infos([span.segment_id for span in spans])
            for span in spans:
                info = infos.get(span.segment_id)
                if info is not None and span.end > info.length:
                    found = f"the batch ends at {span.end}, and it has {info.length} bytes now"
                    self._report(replaced(self.scope, self.stream, span.segment_id, span.start, found))
                    return []
        return spans

    def micro_batch(self, start: SegmentOffsets, end: SegmentOffsets) -> tuple[SegmentOffsets, list[Span]]:
        """Return where a micro-batch that ends at ``end`` begins, and its spans.

        It begins at 0 in all segments where it ends before its start in one: a position only goes back in another
        stream of the name. That is an error, unless data may be missed.
        """
        back = {item: offset for item, offset in start.items() if offset > end.get(item, offset)}
        for item, offset in back.items():
            self._report(replaced(self.scope, self.stream, item, offset, f"the batch ends at {end[item]}"))
        return self._begin_and_spans(dict.fromkeys(start, 0) if back else start, end)

    def spans(self, start: SegmentOffsets, end: SegmentOffsets) -> list[Span]:
        """The spans between any two cuts, also where segments begin or end between them.

        What is gone at the time of planning is an error or left out, as ``fail_on_data_loss`` says.
        """
        return self._begin_and_spans(start, end)[1]

    def _begin_and_spans(self, start: SegmentOffsets, end: SegmentOffsets) -> tuple[SegmentOffsets, list[Span]]:
        """Return the spans between two cuts, and where they begin: behind the start where segments of it are not on
        record any more, as those of another stream of the name or of forgotten epochs."""
        try:
            between = self._gateway.segments_between(self.scope, self.stream, start, end)
        except (InvalidArgument, UnknownOutcome):
            left = self._present(start)[0], self._present(end)[0]
            if left == (start, end):
                raise
            start, end = left
            between = self._gateway.segments_between(self.scope, self.stream, start, end)
        return start, self._spans_of(between, start, end)

    def _spans_of(self, between: Iterable[int], start: SegmentOffsets, end: SegmentOffsets) -> list[Span]:
        spans = []
        wanted = [item for item in sorted(between) if start.get(item, 0) != end.get(item)]
        infos, history = self._infos(wanted), self._history()
        for item in wanted:
            first, last, info = start.get(item, 0), end.get(item), infos.get(item)
            if info is None:
                self._report(self._gone(item, first, history))
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

    def events_within(self, spans: Mapping[int, tuple[int, int]]) -> int | None:
        """About how many events lie in the spans of segments (start and end of each); None where no index is kept.

        Of a sealed segment behind the position they are counted once.
        """
        unknown = {item: span for item, span in spans.items() if self._counts.get(item, (None, 0))[0] != span}
        found = self.events.events_between_of_many(unknown)
        total = 0
        for item, span in spans.items():
            counted = found[item] if item in unknown else self._counts[item][1]
            if item in self._sealed:
                self._counts[item] = (span, counted)
            if counted is None:
                return None
            total += counted
        return total

    def cut_at_time(self, time_ms: int, *, as_end: bool) -> SegmentOffsets:
        """From the head on over scaling, as far as events were written before a time.

        As a start nothing that was written at the time or later lies before it, as an end everything from before does:
        in between lies at most a stretch of the index in each segment. ``UnsupportedOperation`` without an index.
        """
        for _ in range(walks_max - 1):
            try:
                return self._walked_to_time(time_ms, as_end=as_end)
            except (DataCorruption, NotFound, SegmentError) as error:
                _log.info("stream %s/%s changed while a time was looked for: %s", self.scope, self.stream, error)
        return self._walked_to_time(time_ms, as_end=as_end)

    def bound_at_time(self, time_ms: int) -> ReadBound:
        """The end of a read at a time that has come; nothing lies before it in a deleted stream that may be missed."""
        try:
            return self.bound(self.cut_at_time(time_ms, as_end=True))
        except NotFound:
            if self._fails:
                raise
            return ReadBound({}, [])

    def _walked_to_time(self, time_ms: int, *, as_end: bool) -> SegmentOffsets:
        """Go from the head over scaling to a time. Raises for what is truncated on the way, which nobody has missed."""
        self.events.forget()  # An index of before leaves out what was written since, as if that was later.
        cut, infos = self.advanced(self.head())
        while True:
            taken = {
                item: max(offset, self.events.offset_at_time(item, time_ms, as_end=as_end))
                for item, offset in cut.items()
            }
            moved, infos = self.advanced(taken, {} if taken != cut else infos)
            if moved.keys() == cut.keys():
                return moved
            cut = moved


def _ready(following: Mapping[int, list[Successor]]) -> set[int]:
    """Find the segments that are read out and give way to their successors (``following``): those that can together.

    A successor comes when all its predecessors go, so one that must stay keeps those that share a successor with it.
    """
    ready = {item for item, successors in following.items() if successors}
    while True:
        stay = {item for item in ready if any(set(successor.predecessors) - ready for successor in following[item])}
        if not stay:
            return ready
        ready -= stay
