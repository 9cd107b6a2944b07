"""Something that works for Tier 2 in the background dies: its container stops, instead of going on without it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import ContainerOffline
from pravega_common.invariants import InvariantViolation
from pravega_common.runtime import failpoints
from pravega_common.services.base import ServiceState
from segment_service.container.segment_container import SegmentContainer
from segment_service.storage import compaction, garbage, orphan_sweep
from segment_service.storage.chunk_names import ChunkId
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.segment_sweep import Swept
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually


@pytest.fixture
async def container(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SegmentContainer]:
    monkeypatch.setattr(garbage, "gathering_time_s", 0.0)
    monkeypatch.setattr(orphan_sweep, "start_delay_s", 0.2)
    kit = ContainerKit()
    kit.background = True
    kit.write_to_tier2()
    container = await kit.open()
    yield container
    failpoints.disarm_all()
    await container.stop()


def broken() -> None:
    raise InvariantViolation("a belief that did not hold")


def storage_of(container: SegmentContainer) -> RollingStorage:
    storage = container._storage  # private: the services of Tier 2 are reached through it
    assert isinstance(storage, RollingStorage)
    return storage


async def flushed(container: SegmentContainer, length: int) -> None:
    segment = container.metadata.by_name("s")
    assert segment is not None
    await eventually(lambda: segment.storage_length == length, "a flush")


async def assert_stops(container: SegmentContainer) -> None:
    heard: list[BaseException] = []
    container.on_failure(heard.append)
    await eventually(lambda: container.state is ServiceState.FAILED, "the container stops")
    assert isinstance(container.failure, InvariantViolation)
    assert heard == [container.failure]
    with pytest.raises(ContainerOffline):
        await container.get_info("s")


async def test_a_garbage_collector_that_dies_stops_its_container(container: SegmentContainer) -> None:
    failpoints.arm(garbage.BARRIER_PASSED, broken)
    await container.create_segment("s")
    await container.append("s", [b"data"])
    storage = storage_of(container)
    await eventually(lambda: storage.garbage.is_running, "Tier 2 is open")
    manifests = storage._manifests  # private: for a name that nothing uses
    unused = ChunkId(1, manifests.epoch, manifests.new_number())
    storage.garbage.discard([storage.layout.chunk(unused)])
    await assert_stops(container)


async def test_a_compaction_that_dies_stops_its_container(
    container: SegmentContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 2)
    failpoints.arm(compaction.COMPOSED, broken)
    await container.create_segment("s")
    for _ in range(3):  # one more than that for segments with an odd number
        length = await container.append("s", [b"data"])
        await flushed(container, length)
    await assert_stops(container)


async def test_a_sweep_that_dies_stops_its_container(
    container: SegmentContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sweep(_: orphan_sweep.OrphanSweeper) -> Swept:
        raise InvariantViolation("a belief that did not hold")

    monkeypatch.setattr(orphan_sweep.OrphanSweeper, "sweep", sweep)
    await assert_stops(container)
