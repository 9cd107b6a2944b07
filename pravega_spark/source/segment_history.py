"""Tells the keys of segments from the epochs that the controller has on record.

A controller forgets epochs from before the head of a stream. An open segment may be older than all that are left, but
each epoch from the head on is on record, and so is the last one that had a segment which is not truncated.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from pravega_common.errors import InvalidArgument, NotFound, SegmentNotFound
from pravega_common.model.segments import SegmentOffsets, SegmentRange
from pravega_common.names import segment_epoch, segment_name
from pravega_spark.gateway.contract import StreamGateway


class SegmentHistory:
    """One stream as the controller has it on record now; each epoch is asked for once."""

    def __init__(self, gateway: StreamGateway, scope: str, stream: str) -> None:
        self._gateway = gateway
        self._scope = scope
        self._stream = stream
        self._epochs: dict[int, dict[int, SegmentRange] | None] = {}

    @cached_property
    def head(self) -> SegmentOffsets:
        """The first position that is still there."""
        return self._gateway.head_cut(self._scope, self._stream)

    def is_foreign(self, segment_id: int) -> bool:
        """Whether the stream certainly never had a segment: it is of another one, which had the same name before."""
        epoch = segment_epoch(segment_id)
        segments = self._segments_of(epoch)
        if segments is not None:
            return segment_id not in segments
        return epoch >= max(map(segment_epoch, self.head))  # Else the epoch is only forgotten.

    def ranges(self, segment_ids: Collection[int]) -> dict[int, SegmentRange]:
        """The keys of segments that are not truncated; ``SegmentNotFound`` for one that is so meanwhile."""
        known: dict[int, SegmentRange] = {}
        for epoch in sorted(set(map(segment_epoch, segment_ids))):
            known.update(self._segments_of(epoch) or {})
        if not known.keys() >= set(segment_ids):
            current = self._gateway.current_segments(self._scope, self._stream)
            known.update((item.segment_id, item) for item in current)
        for item in sorted(segment_ids):
            if item not in known:
                known.update(self._segments_of(self._last_epoch_with(item)) or {})
            if item not in known:
                raise self._truncated(item)
        return {item: known[item] for item in segment_ids}

    def _segments_of(self, epoch: int) -> dict[int, SegmentRange] | None:
        """The segments of an epoch; None for one that is forgotten, or never was."""
        if epoch not in self._epochs:
            try:
                found = self._gateway.epoch_segments(self._scope, self._stream, epoch)
            except (InvalidArgument, NotFound):
                self._epochs[epoch] = None
            else:
                self._epochs[epoch] = {item.segment_id: item for item in found}
        return self._epochs[epoch]

    def _last_epoch_with(self, segment_id: int) -> int:
        """The epoch before the one that replaced a segment; the last one of a stream that is sealed."""
        try:
            following = self._gateway.successors(self._scope, self._stream, segment_id)
        except NotFound as error:
            raise self._truncated(segment_id) from error
        if following:
            return min(segment_epoch(item.segment.segment_id) for item in following) - 1
        return max(map(segment_epoch, self._gateway.tail_cut(self._scope, self._stream)))

    def _truncated(self, segment_id: int) -> SegmentNotFound:
        return SegmentNotFound(segment_name(self._scope, self._stream, segment_id))
