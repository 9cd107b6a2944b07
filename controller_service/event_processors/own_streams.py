"""Answers a reader's questions about streams from the controller's own records, without a call to itself."""

from __future__ import annotations

from controller_service.store.cut_validity import is_valid_in
from controller_service.store.history import place_in, segments_between
from controller_service.store.records import SegmentRecord
from controller_service.store.stream_positions import head_of, open_segments, successors_of
from controller_service.store.stream_store import StreamStore
from pravega_common.model.segments import SegmentOffsets, SegmentRange, Successor


class OwnStreams:
    """A ``StreamMetadata`` over the records of this instance."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store

    async def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        head = await head_of(self._store, scope, stream)
        return {segment_id: max(0, offset) for segment_id, offset in head.items()}

    async def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return [_range(scope, stream, record) for record in await open_segments(self._store, scope, stream)]

    async def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        found = await successors_of(self._store, scope, stream, segment_id)
        return [Successor(_range(scope, stream, record), before) for record, before in found]

    async def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        opened = await self._store.open(scope, stream)
        return await is_valid_in(opened, await place_in(opened, cut))

    async def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        opened = await self._store.open(scope, stream)
        return await segments_between(opened, await place_in(opened, start), await place_in(opened, end))


def _range(scope: str, stream: str, record: SegmentRecord) -> SegmentRange:
    return SegmentRange(scope, stream, record.segment_id, record.key_start, record.key_end)
