"""Finds where to truncate a stream to keep a number of bytes, or all since a time: cuts on event boundaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pravega_common.errors import SegmentNotFound, UnsupportedOperation
from pravega_common.event_index import TIME_MS, RecordPage, RecordSearch, index_record_bytes, page_range
from pravega_common.model.segments import SegmentInfo, SegmentOffsets
from pravega_common.names import index_segment_name, segment_name
from pravega_spark.gateway.contract import RangeSource, StreamGateway
from pravega_spark.rows.framing import EventWindow
from pravega_spark.source.range_planner import share
from pravega_spark.source.stream_positions import StreamPositions
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.client import StreamClient

located_slack_bytes: Final = (1 << 20, 1 << 24, 1 << 28)
"""Distances before the wanted offset at which a store is asked for a boundary, before the events are walked."""


class Trimmer:
    """Finds truncation points of one stream. Asks the cluster again in every call."""

    def __init__(self, client: StreamClient, gateway: StreamGateway, scope: str, stream: str) -> None:
        self._client = client
        self._gateway = gateway
        self._scope = scope
        self._stream = stream
        self._positions = StreamPositions(gateway, scope, stream, fail_on_data_loss=False)

    def keep_bytes(self, wanted_bytes: int) -> SegmentOffsets:
        """Returns the latest cut found after which at least this number of bytes is left (all, if there are fewer)."""
        total = sum(span.length for span in self._positions.spans(self._head(), self._tail()))
        remaining = max(0, total - wanted_bytes)

        def take(cut: SegmentOffsets, infos: dict[int, SegmentInfo]) -> SegmentOffsets:
            nonlocal remaining
            backlogs = {(self._stream, item): max(0, infos[item].length - cut[item]) for item in cut}
            shares = share(remaining, backlogs) if remaining else {}
            ends = {}
            for item, offset in cut.items():
                wanted, backlog = shares.get((self._stream, item), 0), backlogs[self._stream, item]
                ends[item] = offset + backlog if wanted >= backlog else self._boundary(item, offset, offset + wanted)
                remaining = max(0, remaining - (ends[item] - offset))
            if any(shares.get((self._stream, item), 0) < backlogs[self._stream, item] for item in cut):
                remaining = 0
            return ends

        return self._walk(take)

    def since(self, time_ms: int) -> SegmentOffsets:
        """Returns the latest cut found before which everything was written by that time, by the stores' clocks.

        A store knows the last change of every segment, and with an index segment also times within it; without one a
        segment is kept whole until all of it is old enough.
        """

        def take(cut: SegmentOffsets, infos: dict[int, SegmentInfo]) -> SegmentOffsets:
            return {item: max(offset, self._written_until(item, infos[item], time_ms)) for item, offset in cut.items()}

        return self._walk(take)

    def _walk(self, take: Callable[[SegmentOffsets, dict[int, SegmentInfo]], SegmentOffsets]) -> SegmentOffsets:
        """Advances a cut from the head as far as ``take`` goes, over scale events."""
        cut, infos = self._positions.advanced(self._head())
        while True:
            moved, known = self._positions.advanced(take(cut, infos), infos)
            if moved == cut:
                return cut
            if moved.keys() == cut.keys():
                return moved
            cut, infos = moved, known

    def _head(self) -> SegmentOffsets:
        return self._gateway.head_cut(self._scope, self._stream)

    def _tail(self) -> SegmentOffsets:
        return self._gateway.tail_cut(self._scope, self._stream)

    # Boundaries

    def _boundary(self, segment_id: int, start: int, target: int) -> int:
        """Returns the last known event boundary at or before ``target``; ``start`` is one."""
        for slack_bytes in located_slack_bytes:
            asked = target - slack_bytes
            if asked <= start:
                break
            try:
                located = self._gateway.locate_offset(self._scope, self._stream, segment_id, asked)
            except UnsupportedOperation:  # An older store knows no boundaries: the events are walked.
                break
            if located <= target:
                start = located
                break
        source = self._gateway.open_range(segment_name(self._scope, self._stream, segment_id), start, target)
        try:
            return _last_boundary(source, start)
        finally:
            source.close()

    def _written_until(self, segment_id: int, info: SegmentInfo, time_ms: int) -> int:
        """Returns an offset before which everything was written by that time."""
        if 0 < info.last_modified_ms <= time_ms:
            return info.length
        name = index_segment_name(segment_name(self._scope, self._stream, segment_id))
        try:
            index = self._client.segments.info(name)
        except (SegmentNotFound, UnsupportedOperation):
            return info.start_offset
        sockets = ReadSockets()
        try:
            return min(info.length, max(info.start_offset, self._search(name, index, time_ms, sockets)))
        finally:
            sockets.close()

    def _search(self, name: str, index: SegmentInfo, time_ms: int, sockets: ReadSockets) -> int:
        """Returns the length in the last index record of that time or before; 0 without such a record."""
        first, end = -(-index.start_offset // index_record_bytes), index.length // index_record_bytes
        search = RecordSearch(first, end, TIME_MS, time_ms + 1)
        while (wanted := search.wanted) is not None:
            search.feed(self._page(name, *page_range(wanted, first, end), sockets))
        if search.found == first:
            return 0
        return self._page(name, search.found - 1, search.found, sockets).record(search.found - 1).length

    def _page(self, name: str, first: int, end: int, sockets: ReadSockets) -> RecordPage:
        data = bytearray((end - first) * index_record_bytes)
        offset = first * index_record_bytes
        reader = RangeReader(name, offset, offset + len(data), self._client.segments.endpoints, sockets)
        reader.read_into(memoryview(data))
        return RecordPage(first, memoryview(data))


def _last_boundary(source: RangeSource, start: int) -> int:
    """Walks over the events of a range, which need not end with a whole one; returns the end of the last."""
    window = EventWindow(start)
    while True:
        free = window.free()
        count = source.read_into(free)
        if count == 0:
            return window.offset
        window.filled(count)
        window.consume(window.index())
