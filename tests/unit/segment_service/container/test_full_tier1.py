"""A Tier 1 without memory: appends and starts wait until Tier 2 has what it holds, and then go on."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import Throttled
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.data_log import frames_in_flight_bytes_max
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.storage.chunk_names import Layout
from segment_service.writer.config import WriterConfig
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
    kit.logs.faults.capacity_bytes = 0  # no limit: the end waits for no room
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


@pytest.fixture
async def held(kit: ContainerKit) -> SegmentContainer:
    """A container of whose segment ``hurt`` the storage writer holds an operation, as its manifest is lost."""
    kit.write_to_tier2(WriterConfig(flush_age_s=0.02, tick_s=0.01, damage_recheck_s=3600.0))
    container = await kit.open()
    for name in ("s", "hurt"):
        await container.create_segment(name)
        await container.append(name, [block])
    hurt = container.metadata.by_name("hurt")
    assert hurt is not None
    await eventually(lambda: hurt.storage_length == hurt.length, "it is in Tier 2")
    for _ in range(3):
        await container.durable_log.checkpoint()
        await eventually(lambda: not container.durable_log.memory_length, "Tier 1 has checkpoints alone")
    await container.stop()
    manifests = Layout(0).manifests_of(hurt.segment_id)
    for lost in [name for name in kit.stored.objects if name.startswith(manifests)]:
        await kit.stored.delete_all([lost])
    container = await kit.open()
    await container.append("hurt", [block])
    await is_held(container)
    return container


async def is_held(container: SegmentContainer) -> None:
    await eventually(lambda: container.metadata.quarantine.is_holding, "the segment is held")


@pytest.mark.parametrize("is_queue_full", [False, True])
async def test_a_held_segment_can_be_deleted(kit: ContainerKit, held: SegmentContainer, is_queue_full: bool) -> None:
    before = (await held.get_info("s")).length
    kit.logs.faults.capacity_bytes = capacity_bytes
    appends = await fill(held)
    appends += [held.append("s", [block]) for _ in range(2_000)]
    if is_queue_full:
        held.durable_log.queue._bytes_max = len(block)
        with pytest.raises(Throttled):
            await held.delete("s")
    await asyncio.sleep(0.3)  # nothing signals that nothing happens: the log looks for a way out three times
    stored = sum(len(entry.payload) for entry in kit.logs.entries(0))
    assert stored <= capacity_bytes
    deleted = asyncio.ensure_future(held.delete("hurt"))
    most = 0
    async with asyncio.timeout(10):
        while not deleted.done():
            await asyncio.sleep(0.005)  # the log signals no frame of its own: it is looked at often
            most = max(most, sum(len(entry.payload) for entry in kit.logs.entries(0)))
    await deleted
    assert most < capacity_bytes + 2 * frames_in_flight_bytes_max, "most of what waits behind the deletion gets no room"
    await asyncio.wait_for(asyncio.gather(*appends), 20)
    assert (await held.get_info("s")).length == before + len(appends) * len(block)
    await eventually(lambda: sum(len(entry.payload) for entry in kit.logs.entries(0)) < stored, "Tier 1 is freed")
    await held.stop()


async def test_a_start_does_not_wait_for_a_held_segment(kit: ContainerKit, held: SegmentContainer) -> None:
    kit.logs.faults.capacity_bytes = capacity_bytes
    await fill(held)
    held.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await held.wait_stopped()
    kit.logs.faults.capacity_bytes = sum(len(entry.payload) for entry in kit.logs.entries(0))
    container = await asyncio.wait_for(kit.open(), 5)
    await is_held(container)
    waiting = container.append("s", [block])
    await asyncio.sleep(0.3)  # nothing signals that nothing happens: the log looks for a way out three times
    assert not waiting.done(), "the start is over, and frames wait for room again"
    await asyncio.wait_for(container.delete("hurt"), 5)
    await asyncio.wait_for(waiting, 5)
    await container.stop()
