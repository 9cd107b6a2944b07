"""Event indexes that a crash left behind go after the start, while requests are served."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from pravega_common.names import index_segment_name
from segment_service.contracts.attributes import INDEX_OWNER
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.event_index.indexer import EventIndexer
from segment_service.event_index.locator import BoundaryLocator
from segment_service.metadata.container_metadata import ContainerMetadata
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore

FIRST, SECOND = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"


class LeftOvers(InMemorySegmentStore):
    """Two indexes without segments; the second segment is made again while the first index is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = ContainerMetadata(0)
        self.add(SegmentMetadata(2, index_segment_name(FIRST), attributes={INDEX_OWNER: 1}))
        self.add(SegmentMetadata(4, index_segment_name(SECOND), attributes={INDEX_OWNER: 3}))
        self.deleted: list[str] = []

    def add(self, segment: SegmentMetadata) -> None:
        self.metadata.segments[segment.segment_id] = segment
        self.metadata.ids[segment.name] = segment.segment_id

    async def delete(self, segment: str) -> None:
        self.deleted.append(segment)
        del self.metadata.ids[segment]
        if SECOND not in self.metadata.ids:
            self.add(SegmentMetadata(5, SECOND))
            self.add(SegmentMetadata(6, index_segment_name(SECOND), attributes={INDEX_OWNER: 5}))


async def test_the_index_of_a_segment_that_is_made_again_meanwhile_stays() -> None:
    store = LeftOvers()
    locator = BoundaryLocator(store.metadata, store.read)
    indexer = EventIndexer(store, store.metadata, locator, ManualClock(), structlog.get_logger())
    running = asyncio.create_task(indexer.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert store.deleted == [index_segment_name(FIRST)]
