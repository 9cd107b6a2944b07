"""Runs a container with its storage writer: Tier 1 gets shorter, Tier 2 gets everything, no byte is lost in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import ContainerOffline, Fenced, SegmentNotFound, Throttled, Unavailable, UnknownOutcome
from pravega_common.runtime import failpoints
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.durable_log import durable_log
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.storage.chunk_format import block_bytes
from tests.support.containers import ContainerKit, IdleWriter, read_all
from tests.support.eventually import eventually

KEY = AttributeId(b"0123456789abcdef")


@pytest.fixture
async def kit() -> AsyncIterator[ContainerKit]:
    kit = ContainerKit(
        cache_bytes=8 * 1024 * 1024,
        unflushed_bytes_max=2 * 1024 * 1024,
        checkpoints=CheckpointPolicy(operations_max=20, bytes_max=256 * 1024),
        plog_bytes=512 * 1024,
    )
    kit.write_to_tier2()
    yield kit
    failpoints.disarm_all()


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()


def log_bytes(kit: ContainerKit) -> int:
    return sum(len(entry.payload) for entry in kit.logs.entries(0))


async def append_waiting(kit: ContainerKit, container: SegmentContainer, segment: str, data: bytes) -> int:
    """Appends as a connection does, which takes nothing while the store takes nothing."""
    await kit.back_pressure.wait_open()
    return await container.append(segment, [data])


async def tier2_was_tried(kit: ContainerKit) -> None:
    """Returns when the storage writer has met the stopped Tier 2 a few times more."""
    calls = kit.chunks.calls + 5
    await eventually(lambda: kit.chunks.calls >= calls, "the storage writer's attempts")


async def test_tier1_is_truncated_and_the_data_stays_readable(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    blocks = [bytes([number]) * 60_000 for number in range(200)]
    for block in blocks:
        await append_waiting(kit, container, "s", block)
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
    await eventually(lambda: log_bytes(kit) < 2_000_000, "Tier 1 truncated")
    assert (await container.get_info("s")).storage_length == 12_000_000
    assert await read_all(container, "s") == b"".join(blocks)
    await container.stop()

    again = await kit.open()
    assert await read_all(again, "s") == b"".join(blocks)
    assert again.durable_log.recovered.appended_bytes < 2_000_000
    await again.stop()


async def test_attributes_and_lengths_survive_in_checkpoints_alone(kit: ContainerKit) -> None:
    container = await kit.open()
    for name in ("s", "t", "gone", "sealed", "cut"):
        await container.create_segment(name)
        await container.append(name, [name.encode() * 10], [AttributeUpdate(KEY, AttributeUpdateType.REPLACE, 42)])
    await container.merge("s", "t")
    await container.delete("gone")
    await container.seal("sealed")
    await container.truncate("cut", 9)
    for _ in range(4):
        await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
        await container.durable_log.checkpoint()
        await eventually(lambda: len(kit.logs.entries(0)) <= 2, "Tier 1 truncated at the checkpoint")
    await crash(container)

    again = await kit.open()
    assert again.durable_log.recovered.operations < 8, "all that is left is a checkpoint or two"
    assert await read_all(again, "s") == b"s" * 10 + b"t" * 10
    for name in ("s", "sealed", "cut"):
        assert await again.get_attribute(name, KEY) == 42
    assert (await again.get_info("sealed")).is_sealed
    assert (await again.get_info("cut")).start_offset == 9
    for name in ("t", "gone"):
        with pytest.raises(SegmentNotFound):
            await again.get_info(name)
    assert await again.append("s", [b"!"]) == 21
    await again.stop()


async def test_with_tier2_stopped_appends_wait_and_a_full_tier1_can_be_recovered(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    written = b""
    while kit.back_pressure.is_open:
        block = bytes([len(written) % 251]) * 50_000
        await append_waiting(kit, container, "s", block)
        written += block
    waiting = asyncio.ensure_future(append_waiting(kit, container, "s", b"later"))
    await tier2_was_tried(kit)
    assert not waiting.done()
    refused = 0
    while not refused:
        try:
            await container.append("s", [bytes([len(written) % 251]) * 50_000])
            written += bytes([len(written) % 251]) * 50_000
        except Throttled:
            refused += 1
    assert len(written) <= 1.5 * kit.back_pressure.bytes_max + 50_000
    waiting.cancel()
    await crash(container)
    assert kit.back_pressure.bytes == 0

    kit.chunks.resume()  # a start waits for Tier 2, which alone knows whether the log is the right one
    kit.writer_factory = IdleWriter
    idle = await kit.open()
    assert not kit.back_pressure.is_open, "what was replayed counts"
    assert await read_all(idle, "s") == written
    waiting = asyncio.ensure_future(append_waiting(kit, idle, "s", b"later"))
    await asyncio.sleep(0)
    assert not waiting.done(), "nothing opens the gate: the writer is idle"
    waiting.cancel()
    await crash(idle)

    kit.write_to_tier2()
    again = await kit.open()
    await append_waiting(kit, again, "s", b"later")
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
    assert await read_all(again, "s") == written + b"later"
    await again.stop()


async def test_a_container_takes_requests_once_tier2_answered(kit: ContainerKit) -> None:
    """Only Tier 2 knows whether the log is the right one; what was accepted before is in the log and waits there."""
    kit.chunks.stop()
    start = asyncio.ensure_future(kit.open())
    await tier2_was_tried(kit)
    assert not start.done()
    kit.chunks.resume()
    container = await start
    await container.create_segment("s")
    kit.chunks.stop()
    await container.append("s", [b"data"])
    assert await read_all(container, "s") == b"data"
    kit.chunks.resume()
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
    await container.stop()


async def test_a_fenced_owner_goes_offline(kit: ContainerKit) -> None:
    old = await kit.open()
    await old.create_segment("s")
    await old.append("s", [b"data"])
    new = await kit.open()
    with pytest.raises(UnknownOutcome):
        await old.durable_log.barrier()
    with pytest.raises(Fenced):
        await old.wait_stopped()
    assert await read_all(new, "s") == b"data"
    await new.stop()


async def test_a_crash_before_truncation_costs_nothing(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    hits = 0

    def crash_at_the_second() -> None:
        nonlocal hits
        hits += 1
        if hits == 2:
            raise RuntimeError("crash")

    failpoints.arm(durable_log.BEFORE_TRUNCATE, crash_at_the_second)
    written = b""
    while container.is_running:
        try:
            await container.append("s", [b"x" * 30_000])
        except (ContainerOffline, UnknownOutcome):
            break
        written += b"x" * 30_000
        await kit.back_pressure.wait_open()
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()
    again = await kit.open()
    assert (await read_all(again, "s"))[: len(written)] == written
    await again.stop()


async def test_a_truncation_that_fails_is_made_up_for(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.logs.faults.truncate_error = Unavailable("injected")
    for _ in range(100):
        await append_waiting(kit, container, "s", bytes(50_000))
    await eventually(lambda: log_bytes(kit) < 2_000_000, "Tier 1 truncated")
    assert kit.logs.faults.truncate_error is None
    await container.stop()


async def test_a_cold_scan_reads_each_block_of_tier2_once(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    data = random.Random(3).randbytes(6_000_000)
    for first in range(0, len(data), 300_007):
        await append_waiting(kit, container, "s", data[first : first + 300_007])
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")
    await container.stop()
    again = await kit.open()
    get, taken = kit.chunks.get, 0

    async def counted(name: str, offset: int, length: int) -> bytes:
        nonlocal taken
        taken += length if "/d/" in name else 0
        return await get(name, offset, length)

    kit.chunks.get = counted  # type: ignore[method-assign]
    assert await read_all(again, "s") == data
    assert taken < 1.02 * len(data) + block_bytes, "the first fetch does not know the blocks yet"
    await again.stop()
