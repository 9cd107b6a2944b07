"""A Tier 1 without memory: appends and starts wait until Tier 2 has what it holds, and then go on."""

from __future__ import annotations

import asyncio

import pytest

from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually

block = bytes(10_000)
capacity_bytes = 300_000


@pytest.fixture(params=[60_000, 1 << 40], ids=["checkpoints", "no checkpoint but the first"])
def kit(request: pytest.FixtureRequest) -> ContainerKit:
    kit = ContainerKit(checkpoints=CheckpointPolicy(100_000, request.param), plog_bytes=100_000)
    kit.write_to_tier2()
    return kit


async def fill(container: SegmentContainer) -> list[asyncio.Future[int]]:
    appends: list[asyncio.Future[int]] = []
    while not container.durable_log.is_full:
        appends.append(container.append("s", [block]))
        await asyncio.sleep(0)
    return appends


async def test_a_running_container_waits_and_goes_on(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    kit.logs.faults.capacity_bytes = capacity_bytes
    appends = await fill(container)
    await asyncio.sleep(0.1)  # nothing signals that nothing happens: the log looks for room 20 times
    assert container.is_running and not appends[-1].done()
    kit.chunks.resume()
    await asyncio.gather(*appends)
    for _ in range(100):
        await asyncio.wait_for(container.append("s", [block]), 5)
    assert len(await read_all(container, "s")) == (len(appends) + 100) * len(block)
    await container.stop()


async def test_a_merge_in_tier2_does_not_wait_for_room(kit: ContainerKit) -> None:
    """It is what holds the room: Tier 1 keeps all from the merge on until Tier 2 has done it."""
    container = await kit.open()
    for segment in ("s", "t"):
        await container.create_segment(segment)
    await container.append("t", [block])
    source = container.metadata.by_name("t")
    assert source is not None
    await eventually(lambda: source.storage_length == source.length, "the source is in Tier 2")
    kit.chunks.stop()
    await container.merge("s", "t")
    kit.logs.faults.capacity_bytes = capacity_bytes
    appends = await fill(container)
    kit.chunks.resume()
    await asyncio.wait_for(asyncio.gather(*appends), 10)
    assert len(await read_all(container, "s")) == (len(appends) + 1) * len(block)
    await container.stop()


async def test_a_start_frees_first(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    kit.logs.faults.capacity_bytes = capacity_bytes
    await fill(container)
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    stored = sum(len(entry.payload) for entry in kit.logs.entries(0))
    kit.logs.faults.capacity_bytes = stored
    kit.chunks.resume()
    container = await asyncio.wait_for(kit.open(), 5)
    length = (await container.get_info("s")).length
    assert length >= capacity_bytes - 5 * len(block)
    await asyncio.wait_for(container.append("s", [block]), 5)
    await eventually(lambda: sum(len(entry.payload) for entry in kit.logs.entries(0)) < stored, "Tier 1 is freed")
    await container.stop()
    container = await kit.open()
    assert (await container.get_info("s")).length == length + len(block)
    await container.stop()
