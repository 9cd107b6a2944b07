"""Where a stream's readers stand and how far they may go: cuts moved over scaling, truncation and seal."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pravega_common.errors import DataCorruption, InvalidArgument, NoSuchSegment, SegmentTruncated, UnsupportedOperation
from pravega_common.names import segment_epoch
from pravega_spark.gateway import Cut, StreamGateway
from pravega_spark.range_planner import Span
from pravega_streams.controller.model import SegmentRange, Successor
from pravega_streams.segment.segment_client import SegmentInfo

_log = logging.getLogger(__name__)


def data_loss(scope: str, stream: str, segment_id: int, wanted: int, available: int | None) -> DataCorruption:
    """The error of ``fail_on_data_loss``; ``available`` is the first offset left, None for a deleted segment."""
    left = "the segment is deleted" if available is None else f"the first offset available is {available}"
    return DataCorruption(
        f"data of stream {scope}/{stream} was lost before it was read: segment {segment_id} from offset {wanted}, "
        f"{left}; set fail_on_data_loss=false to go on with what is left"
    )


class Bound:
    """An end that a read must not pass: a cut of the stream, and which segments lie before it."""

    def __init__(self, cut: Cut, before: list[int]) -> None:
        self._cut = cut
        self._before = set(before)

    def end_of(self, segment_id: int, offset: int, length: int) -> int:
        """How far a segment of ``length`` may be read by somebody who stands at ``offset``."""
        if segment_id in self._cut:
            return max(offset, min(length, self._cut[segment_id]))
        return length if segment_id in self._before else offset


class StreamPositions:
    """One stream as the source sees it. Asks the gateway anew in every call."""

    def __init__(self, gateway: StreamGateway, scope: str, stream: str, *, fail_on_data_loss: bool) -> None:
        self._gateway = gateway
        self.scope = scope
        self.stream = stream
        self._fails = fail_on_data_loss

    def bound(self, cut: Cut) -> Bound:
        head = self._gateway.head_cut(self.scope, self.stream)
        try:
            return Bound(cut, self._gateway.segments_between(self.scope, self.stream, head, cut))
        except InvalidArgument as error:
            raise InvalidArgument(
                f"the end of {self.scope}/{self.stream} lies before what is left of it: {error}"
            ) from error

    def advanced(
        self, cut: Cut, known: Mapping[int, SegmentInfo] | None = None
    ) -> tuple[dict[int, int], dict[int, SegmentInfo]]:
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
        self, cut: Cut, known: Mapping[int, SegmentInfo] | None = None
    ) -> tuple[dict[int, int], dict[int, SegmentInfo]]:
        """The cut without what is gone, which is an error or skipped."""
        moved, infos, gone = dict(cut), {}, set()
        for item, offset in cut.items():
            try:
                info = (known or {}).get(item) or self._gateway.segment_info(self.scope, self.stream, item)
            except NoSuchSegment:
                self._lost(item, offset, None)
                gone.add(item)
                continue
            if info.start_offset > offset:
                self._lost(item, offset, info.start_offset)
                moved[item] = info.start_offset
            infos[item] = info
        return (moved, infos) if not gone else self._present(self._around(moved, gone), infos)

    def _around(self, cut: Cut, gone: set[int]) -> dict[int, int]:
        """The cut with its deleted segments replaced by what the head of the stream has for their keys."""
        lost = [self._range(item) for item in gone]
        made = {item: offset for item, offset in cut.items() if item not in gone}
        for item, offset in self._gateway.head_cut(self.scope, self.stream).items():
            if item not in made and any(_overlap(self._range(item), other) for other in lost):
                made[item] = offset
        return made

    def _range(self, segment_id: int) -> SegmentRange:
        segments = self._gateway.epoch_segments(self.scope, self.stream, segment_epoch(segment_id))
        for item in segments:
            if item.segment_id == segment_id:
                return item
        raise InvalidArgument(
            f"stream {self.scope}/{self.stream} never had a segment {segment_id}; was it created anew?"
        )

    def _lost(self, segment_id: int, wanted: int, available: int | None) -> None:
        error = data_loss(self.scope, self.stream, segment_id, wanted, available)
        if self._fails:
            raise error
        _log.warning("%s", error)

    def spans(self, start: Cut, end: Cut) -> list[Span]:
        """All that lies between any two cuts, also where segments begin or end between them.

        What is gone at the time of planning is an error or left out, as ``fail_on_data_loss`` says.
        """
        spans = []
        for item in sorted(self._gateway.segments_between(self.scope, self.stream, start, end)):
            first, last = start.get(item, 0), end.get(item)
            if last is not None and first >= last:
                continue
            try:
                info = self._gateway.segment_info(self.scope, self.stream, item)
            except NoSuchSegment:
                self._lost(item, first, None)
                continue
            last = info.length if last is None else last
            if first < info.start_offset and first < last:
                self._lost(item, first, info.start_offset)
                first = info.start_offset
            if first < last:
                spans.append(Span(self.scope, self.stream, item, first, last))
        return spans

    def locate(self, segment_id: int, offset: int, end: int) -> int:
        """The first known event boundary at or after ``offset``, at most ``end``; ``end`` where none is known."""
        if offset >= end:
            return end
        try:
            return min(end, self._gateway.locate_offset(self.scope, self.stream, segment_id, offset))
        except UnsupportedOperation:
            return end
        except SegmentTruncated as error:
            return min(end, error.start_offset)


def _all_done(successors: list[Successor], ended: set[int]) -> bool:
    return bool(successors) and all(set(item.predecessors) <= ended for item in successors)


def _overlap(first: SegmentRange, second: SegmentRange) -> bool:
    return first.key_low < second.key_high and second.key_low < first.key_high
