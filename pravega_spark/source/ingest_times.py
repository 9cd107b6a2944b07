"""Gives the times at which a store had taken the events of a span, from the event index of their segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pravega_common.errors import UnsupportedOperation
from pravega_common.runtime.system_time import system_time_ms
from pravega_spark.gateway.contract import Boundaries, StreamGateway
from pravega_spark.rows.arrays import Int64s
from pravega_spark.source.range_planner import Span
from pravega_streams.segment.event_index import time_unknown

_US_PER_MS: Final = 1_000


class IngestTimes:
    """The times of one span's events, asked for by whole record batches.

    The index is looked up once for a span, and again for a batch that it does not know to its end.
    """

    def __init__(self, gateway: StreamGateway, span: Span, now_ms: Callable[[], int] = system_time_ms) -> None:
        self._gateway = gateway
        self._span = span
        self._now_ms = now_ms
        self._index: Boundaries | None = None

    def of(self, offsets: Int64s) -> Int64s:
        """Microseconds since 1970 for the events that begin at ``offsets``, which ascend: each was taken by then.

        The time is that of the next boundary that the index knows. Behind the last one it is the time of the reading,
        or that of the last one if this is later by the store's clock. ``UnsupportedOperation`` where the store keeps
        no index, ``SegmentNotFound`` for a segment that is deleted.
        """
        before = self._index
        times = (before or self._look()).times_behind(offsets)
        if len(times) and times[-1] == time_unknown:
            now_ms = self._now_ms()
            if before is not None:  # It may know more by now.
                times = self._look().times_behind(offsets)
            known = times[times != time_unknown]
            times[len(known) :] = max(now_ms, int(known[-1]) if len(known) else 0)
        return np.multiply(times, _US_PER_MS)

    def _look(self) -> Boundaries:
        span = self._span
        try:
            self._index = self._gateway.boundaries(span.scope, span.stream, span.segment_id)
        except UnsupportedOperation as error:
            raise UnsupportedOperation(
                f"column 'ingest_time' needs to know when events were written, and the store of {span.scope}/"
                f"{span.stream} keeps no index of that (Pravega does from version 0.14 on); leave it out"
            ) from error
        return self._index
