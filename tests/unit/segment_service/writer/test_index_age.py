"""Index segments wait longer for Tier 2 than the segments that they are about."""

from __future__ import annotations

from segment_service.container.segment_container import SegmentContainer
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock

SEGMENT = "scope/stream/0.#epoch.0"
INDEX = SEGMENT + "#index"


def stored(container: SegmentContainer, segment: str) -> int:
    found = container.metadata.by_name(segment)
    assert found is not None
    return found.storage_length


async def test_an_index_segment_is_flushed_after_several_ages() -> None:
    clock = ManualClock()
    kit = ContainerKit(clock=clock)
    kit.write_to_tier2(WriterConfig(flush_age_s=1.0, index_age_ratio=5, quiet_age_ratio=1.0))
    container = await kit.open()
    await container.create_segment(SEGMENT)
    await container.append(SEGMENT, [bytes(10)])
    await eventually(lambda: len(container.metadata.boundaries) > 0)
    await clock.advance(0.1)
    await eventually(lambda: container.event_index.appends_total == 1)
    for _ in range(12):
        await clock.advance(0.1)
    await eventually(lambda: stored(container, SEGMENT) == 10)
    for _ in range(30):
        await clock.advance(0.1)
    assert stored(container, INDEX) == 0
    for _ in range(10):
        await clock.advance(0.1)
    await eventually(lambda: stored(container, INDEX) == 24)
    await container.stop()
