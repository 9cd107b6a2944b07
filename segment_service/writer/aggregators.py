"""Keeps the aggregators of one container, and notes which of them changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from pravega_common.names import is_index_segment, is_transaction_segment
from segment_service.contracts.writer_data_source import WriterDataSource
from segment_service.writer.segment_aggregator import SegmentAggregator


class Aggregators:
    """``SegmentAggregator`` by segment id.

    Every aggregator made here reports each change of what waits in it, so that its owner looks at those that changed
    and at no others.
    """

    def __init__(self, source: WriterDataSource, idle_max: int) -> None:
        self.merged: set[int] = set()
        """The sources of the merges that were read from the log and are not finished in Tier 2."""
        self._source = source
        self._idle_max = idle_max
        self._by_id: dict[int, SegmentAggregator] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """The longest idle one first."""
        self._changed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, segment_id: int) -> SegmentAggregator | None:
        return self._by_id.get(segment_id)

    def obtain(self, segment_id: int) -> SegmentAggregator:
        """Return the aggregator; a new one does not know what Tier 2 has of the segment."""
        aggregator = self._by_id.get(segment_id)
        if aggregator is None:
            metadata = self._source.segment(segment_id)
            aggregator = self.create(segment_id, "" if metadata is None else metadata.name, is_new=False)
        return aggregator

    def create(self, segment_id: int, name: str, *, is_new: bool) -> SegmentAggregator:
        aggregator = self._by_id[segment_id] = SegmentAggregator(
            segment_id,
            is_new=is_new,
            is_transaction=is_transaction_segment(name),
            is_index=is_index_segment(name),
            on_change=self.note,
        )
        self.note(segment_id)
        return aggregator

    def drop(self, segment_id: int) -> None:
        """Forget the segment: it is gone, or waits as part of another one."""
        if self._by_id.pop(segment_id, None) is not None:
            self._idle.pop(segment_id, None)
            self.note(segment_id)

    def note(self, segment_id: int) -> None:
        """Have the segment looked at."""
        self._changed[segment_id] = None

    def take_changed(self) -> Iterable[int]:
        """Return the segments that changed since the last call, in the order in which they first did."""
        changed, self._changed = self._changed, {}
        return changed

    def rest(self, segment_id: int) -> None:
        """Count the aggregator as idle. Beyond a limit the longest idle one is forgotten; when it is used again, Tier 2
        is asked for its state."""
        self._idle[segment_id] = None
        self._idle.move_to_end(segment_id)
        if len(self._idle) <= self._idle_max:
            return
        oldest, _ = self._idle.popitem(last=False)
        aggregator = self._by_id[oldest]
        if aggregator.is_idle and not aggregator.is_busy and oldest not in self.merged:
            del self._by_id[oldest]

    def stir(self, segment_id: int) -> None:
        """Count the aggregator as idle no longer."""
        self._idle.pop(segment_id, None)
