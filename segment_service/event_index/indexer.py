"""Writes the index segments of one container, behind the appends and never in their way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from pravega_common.errors import DataCorruption, FailedError, Fenced, RejectedError, SegmentExists, UnknownOutcome
from pravega_common.event_index import IndexRecord, encode_records, index_record_bytes
from pravega_common.names import INDEX_SUFFIX, index_segment_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    EXPECTED_INDEX_EVENT_SIZE,
    INDEX_OWNER,
    INDEXED_LENGTH,
    INDEXED_TIME,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_store import SegmentStore
from segment_service.event_index.locator import BoundaryLocator
from segment_service.metadata.boundary_tracker import last_record
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.index_segments import index_of, recover_boundaries, unread_index

BEFORE_CREATE: Final = register("event_index.before_create")
BEFORE_APPEND: Final = register("event_index.before_append")
BEFORE_TRUNCATE: Final = register("event_index.before_truncate")

index_delay_s: Final = 0.1
"""From growth of a segment to its record: what comes in this time is one append to the index segment."""
segments_per_pass_max: Final = 64
"""Segments whose records are written together, once per delay: with more of them growing, each waits longer."""

_REPLACE: Final = AttributeUpdateType.REPLACE


class EventIndexer:
    """``run`` and ``run_truncations`` are loops without end, for the container to spawn.

    Every refusal and failure leaves the index behind, never wrong: the records are made from what is durable at the
    time of the attempt, continue the index's last record, and are refused by the log if the index is not the one that
    they were made for. Of an index that cannot be read nothing is known: it is left alone until it can.
    """

    def __init__(
        self, store: SegmentStore, metadata: ContainerMetadata, locator: BoundaryLocator, clock: Clock, log: Any
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._tracker = metadata.boundaries
        self._locator = locator
        self._clock = clock
        self._log = log
        self._grown = asyncio.Event()
        self._truncated: dict[str, None] = {}
        self._to_truncate = asyncio.Event()
        self.appends_total = 0
        self.records_total = 0

    async def run(self) -> None:
        """Write what recovery found missing, then what grows."""
        self._tracker.on_growth = self._grown.set
        for name in recover_boundaries(self._metadata):
            await self.read_again(name.removesuffix(INDEX_SUFFIX))  # the segment may have been made again meanwhile
        while True:
            await self.write_waiting()
            if not len(self._tracker):
                await self._grown.wait()
            self._grown.clear()
            await self._clock.sleep(index_delay_s)

    async def write_waiting(self) -> None:
        """One round over the segments that lack records."""
        waiting = self._tracker.waiting(segments_per_pass_max)
        await all_ended(self._write(segment_id) for segment_id in waiting)

    async def create(self, segment: SegmentMetadata) -> None:
        """An empty index segment, in the place of one that was about an earlier segment of this name."""
        name = index_segment_name(segment.name)
        failpoint(BEFORE_CREATE)
        if self._metadata.by_name(name) is not None:
            await self._store.delete(name)
        attributes = (
            AttributeUpdate(EXPECTED_INDEX_EVENT_SIZE, _REPLACE, index_record_bytes),
            AttributeUpdate(INDEX_OWNER, _REPLACE, segment.segment_id),
        )
        await self._store.create_segment(name, attributes)
        if segment.is_deleted or segment.is_merged:
            await self._store.delete(name)

    async def read_again(self, segment: str) -> None:
        """The segment and its index are known as they are now: delete an index that is left of one which is gone."""
        index, ids = index_segment_name(segment), self._metadata.ids
        if index in ids and segment not in ids and segment not in self._metadata.unread_pairs:
            await self._delete(index)

    async def _delete(self, index: str) -> None:
        try:
            await self._store.delete(index)
        except (FailedError, Fenced, UnknownOutcome, RejectedError, DataCorruption) as error:
            self._log.warning("an event index without a segment stays", index=index, error=repr(error))

    async def _write(self, segment_id: int) -> None:
        segment = self._metadata.segments.get(segment_id)
        if segment is None or segment.is_deleted or segment.is_merged:
            self._tracker.gone(segment_id)
            return
        if unread_index(self._metadata, segment) is not None:
            self._tracker.given_up(segment)
            return
        try:
            await self._append(segment)
        except (FailedError, Fenced, UnknownOutcome, SegmentExists):
            return  # it still lacks its records: the next round tries again, or the next owner of the container
        except (RejectedError, DataCorruption) as error:
            self._log.warning("the event index does not follow its segment", segment=segment.name, error=repr(error))
            self._tracker.given_up(segment)

    async def _append(self, segment: SegmentMetadata) -> None:
        index = index_of(self._metadata, segment)
        if index is None:
            await self.create(segment)
            index = index_of(self._metadata, segment)
        if index is None or index.length % index_record_bytes:
            raise RejectedError(f"{segment.name} has no index segment of whole records: {index}")
        records = self._tracker.records(index, segment)
        if not records:
            self._tracker.written(segment, last_record(index).length)
            return
        failpoint(BEFORE_APPEND)
        await self._store.append(
            index.name,
            (encode_records(records),),
            _updates(segment, records[-1]),
            expected_offset=index.length,
        )
        self.appends_total += 1
        self.records_total += len(records)
        self._tracker.written(segment, records[-1].length)

    # ---- truncation --------------------------------------------------------------------------------------------------

    def truncated(self, segment: str) -> None:
        """The segment was truncated: its index follows when there is time."""
        self._truncated[segment] = None
        self._to_truncate.set()

    async def run_truncations(self) -> None:
        while True:
            await self._to_truncate.wait()
            self._to_truncate.clear()
            await self._clock.sleep(index_delay_s)
            for name in list(self._truncated):
                del self._truncated[name]
                segment = self._metadata.by_name(name)
                if segment is not None:
                    await self._truncate(segment)

    async def _truncate(self, segment: SegmentMetadata) -> None:
        """Keep the records from the last one at or below the start on: counts are differences to it."""
        index = index_of(self._metadata, segment)
        if index is None:
            return
        try:
            offset = await self._locator.record_before(index, segment.start_offset) * index_record_bytes
            if offset > index.start_offset:
                failpoint(BEFORE_TRUNCATE)
                await self._store.truncate(index.name, offset)
        except (FailedError, Fenced, UnknownOutcome, RejectedError, DataCorruption) as error:
            self._log.info("an event index keeps truncated records for now", segment=segment.name, error=repr(error))


def _updates(segment: SegmentMetadata, last: IndexRecord) -> Sequence[AttributeUpdate]:
    return (
        AttributeUpdate(
            INDEX_OWNER, AttributeUpdateType.REPLACE_IF_EQUALS, segment.segment_id, comparison=segment.segment_id
        ),
        AttributeUpdate(EVENT_COUNT, _REPLACE, last.event_count),
        AttributeUpdate(INDEXED_LENGTH, _REPLACE, last.length),
        AttributeUpdate(INDEXED_TIME, _REPLACE, last.time_ms),
    )
