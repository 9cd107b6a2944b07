"""A clean stop leaves the next start nothing to replay; one that cannot is said, and loses nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from pravega_common.runtime import failpoints
from segment_service.container import stop_flush
from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.maintenance.log_reading import summarize
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.log_reading import InMemoryLogSource

SAID = "stopping before Tier 2 has everything: the next start replays the log"
content = b"block" * 10_000


def lazy_kit(limit_s: float) -> ContainerKit:
    """Nothing comes to Tier 2 or the table by its age, and no checkpoint is written before it must."""
    kit = ContainerKit(checkpoints=CheckpointPolicy(1_000_000, 1_000_000_000, 0))
    kit.write_to_tier2(WriterConfig(flush_age_s=3_600.0, tick_s=0.01, retry_delay_min_s=0.01, retry_delay_max_s=0.05))
    kit.config = replace(kit.config, stop_flush_max_s=limit_s, metadata_table=MetadataTableConfig(flush_age_s=3_600.0))
    return kit


async def written(kit: ContainerKit) -> SegmentContainer:
    container = await kit.open()
    for number in range(5):
        await container.create_segment(f"s{number}")
        await container.append(f"s{number}", [content])
    await container.seal("s1")
    await container.merge("s0", "s1")
    await container.truncate("s2", 10)
    await container.delete("s3")
    return container


async def assert_serves(container: SegmentContainer) -> None:
    assert await read_all(container, "s0") == content * 2
    assert await read_all(container, "s2", 10) == content[10:]
    assert await read_all(container, "s4") == content


async def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    kit = lazy_kit(30.0)
    container = await written(kit)
    with capture_logs() as logs:
        await container.stop()
    assert SAID not in {entry["event"] for entry in logs}
    log = await summarize(InMemoryLogSource(kit.logs), 0)
    assert (log.operations, log.frames) == (2, 2), "a checkpoint, and the barrier of the stop"
    container = await kit.open()
    recovered = container.durable_log.recovered
    assert (recovered.operations, recovered.appended_bytes) == (2, 0)
    await assert_serves(container)
    await container.stop()


async def test_a_stop_without_tier2_says_so_and_loses_nothing() -> None:
    kit = lazy_kit(0.2)
    container = await written(kit)
    kit.chunks.stop()
    with capture_logs() as logs:
        await container.stop()
    (said,) = [entry for entry in logs if entry["event"] == SAID]
    assert said["acknowledged"] < said["last_operation"] and said["limit_s"] == 0.2
    kit.chunks.resume()
    container = await kit.open()
    assert container.durable_log.recovered.appended_bytes == 5 * len(content)
    await assert_serves(container)
    await container.stop()


@pytest.mark.parametrize("step", [stop_flush.FLUSHED, stop_flush.TABLE_FLUSHED])
async def test_a_stop_that_fails_anywhere_loses_nothing(step: str) -> None:
    kit = lazy_kit(30.0)
    container = await written(kit)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with capture_logs() as logs:
        await container.stop()
    failpoints.disarm_all()
    assert SAID in {entry["event"] for entry in logs}
    for _ in range(2):
        container = await kit.open()
        await assert_serves(container)
        await container.stop()


async def test_a_stop_that_is_cancelled_still_ends_every_part() -> None:
    kit = lazy_kit(30.0)
    container = await written(kit)
    kit.chunks.stop()
    stopping = asyncio.ensure_future(container.stop())
    await eventually(lambda: not container.is_running, "the stop")
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not container.durable_log.is_running
    kit.chunks.resume()
    container = await kit.open()
    await assert_serves(container)
    await container.stop()


async def test_a_quarantined_segment_does_not_hold_the_stop_up() -> None:
    kit = lazy_kit(30.0)
    container = await written(kit)
    container.metadata.quarantine.hold(container.metadata.ids["s4"], "s4", "damaged")
    with capture_logs() as logs:
        await container.stop()
    (said,) = [entry for entry in logs if entry["event"] == SAID]
    assert "held back" in said["error"]
    container = await kit.open()
    await assert_serves(container)
    await container.stop()


async def test_a_container_that_failed_stops_at_once() -> None:
    kit = lazy_kit(30.0)
    container = await written(kit)
    flushes = container.table.flushes_total
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    assert container.table.flushes_total == flushes
    container = await kit.open()
    await assert_serves(container)
    await container.stop()
