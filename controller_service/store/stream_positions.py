"""Answers where a stream begins, which segments are open, and what follows a segment."""

from __future__ import annotations

from controller_service.errors import EpochTruncated, IllegalState
from controller_service.store.epochs import successors
from controller_service.store.records import TRUNCATION, SegmentRecord, StreamState, epoch_key, sealed_segment_key
from controller_service.store.stream_store import StreamStore
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_epoch


async def open_segments(store: StreamStore, scope: str, stream: str) -> tuple[SegmentRecord, ...]:
    """The open segments by key; none of a sealed stream. ``StreamNotFound``; ``IllegalState`` while it is created."""
    opened = await store.open(scope, stream)
    state = await opened.state()
    if state is StreamState.CREATING:
        raise IllegalState(f"Stream: {stream} State: CREATING")
    return () if state is StreamState.SEALED else (await opened.current_epoch()).segments


async def head_of(store: StreamStore, scope: str, stream: str) -> SegmentOffsets:
    """The cut at which the stream begins; ``StreamNotFound``. An offset below 0 is of a segment that was not begun."""
    opened = await store.open(scope, stream, TRUNCATION, epoch_key(0))
    await opened.state()
    return (await opened.truncation()).cut or dict.fromkeys((await opened.epoch(0)).segment_ids, 0)


async def successors_of(
    store: StreamStore, scope: str, stream: str, segment_id: int
) -> list[tuple[SegmentRecord, tuple[int, ...]]]:
    """The successors of a segment, each with what is to be read before; none of an open one.

    ``StreamNotFound``; ``EpochTruncated`` for one that was replaced before the oldest epoch on record: none would
    mean that the stream ends with it.
    """
    key = sealed_segment_key(segment_id)
    opened = await store.open(scope, stream, key, epoch_key(max(0, segment_epoch(segment_id))))
    await opened.state()
    if segment_id < 0:
        return []  # No segment ever had such an id.
    record = await opened.read(key)
    oldest = (await opened.history()).oldest_epoch
    is_open = record is None and (
        segment_epoch(segment_id) >= oldest or (await opened.current_epoch()).find(segment_id) is not None
    )
    if is_open:
        return []
    if record is None or record.replaced_in_epoch - 1 < oldest:
        raise EpochTruncated(
            f"segment {segment_id} of stream {opened.name} was truncated, and what followed it before epoch {oldest}: "
            "reading may begin at the stream's head"
        )
    numbers = (record.replaced_in_epoch - 1, record.replaced_in_epoch)
    before, replaced_in = [epoch async for epoch in opened.walk_epochs(numbers)]
    segment = before.find(segment_id)
    return [] if segment is None else successors(segment, replaced_in, before)
