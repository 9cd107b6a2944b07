"""Deletes segments a second time, when no call that makes them can be under way any more.

Who makes segments takes away what comes too late (``late_segments.py``), unless it dies between the two. So a deletion
of segments that are young, and may be about to be made, leaves a durable request to delete them once more. Names of
segments are never used again, so that does no harm whenever it happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import structlog

from controller_service.queue.request_queue import Postpone, Request, RequestQueue
from controller_service.segment_access.segment_access import SegmentAccess, delete_table_segments
from controller_service.store.records import SegmentRecord
from pravega_common.runtime.clock import Clock

KIND: Final = "delete_segments_again"
creation_ms_max: Final = 75_000
"""A call that makes segments takes a minute at most, and the times of day of controllers differ by less than the rest.
Segments that were planned longer ago are there, or never come."""
segments_per_request_max: Final = 1_000
"""Their names take some 100 KB."""
requests_waiting_max: Final = 1_000
"""Bounds the requests of one controller; further segments are deleted once only."""


class SecondDeletion:
    def __init__(self, queue: RequestQueue, segments: SegmentAccess, clock: Clock) -> None:
        self._queue = queue
        self._segments = segments
        self._clock = clock
        self._waiting: set[str] = set()
        self._log = structlog.get_logger(service="second-deletion")
        queue.register(KIND, self.handle)

    def may_come(self, planned_ms: int) -> bool:
        """Whether segments that were planned at this time may still be about to be made."""
        return self._clock.wall_ms() - planned_ms < creation_ms_max

    async def promise_young(self, scope: str, stream: str, segments: Sequence[SegmentRecord]) -> None:
        """``promise`` for those segments of a stream that may still be about to be made."""
        await self.promise([item.name(scope, stream) for item in segments if self.may_come(item.created_ms)])

    async def promise(self, names: Sequence[str], *, are_tables: bool = False) -> None:
        """Returns once it is certain that the segments are deleted again in ``creation_ms_max``; to be called before
        they are deleted for the first time. Costs a write for each thousand of them. ``are_tables``: all are tables."""
        for start in range(0, len(names), segments_per_request_max):
            page = list(names[start : start + segments_per_request_max])
            key = f"{KIND}-{hashlib.sha256(chr(0).join(page).encode()).hexdigest()[:32]}"
            if len(self._waiting) >= requests_waiting_max and key not in self._waiting:
                self._log.warning("segments are deleted once only", first=page[0], count=len(page))
                continue
            payload = {"names": page, "due_ms": self._clock.wall_ms() + creation_ms_max, "are_tables": are_tables}
            await self._queue.submit(Request(key, KIND, key, payload))
            self._waiting.add(key)

    async def handle(self, request: Request) -> None:
        left_ms = request.payload["due_ms"] - self._clock.wall_ms()
        if left_ms > 0:
            raise Postpone("the segments may still be made", delay_s=min(left_ms, creation_ms_max) / 1000)
        names = request.payload["names"]
        if request.payload.get("are_tables"):
            await delete_table_segments(self._segments, names)
        else:
            await self._segments.delete_segments(names)
        self._waiting.discard(request.request_id)
