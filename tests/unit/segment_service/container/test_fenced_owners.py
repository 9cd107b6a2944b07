"""An owner that was fenced without knowing it takes nothing that later owners did to Tier 2 for damage."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import Fenced, SegmentDamaged, Unavailable
from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log import durable_log
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.writer.config import WriterConfig
from segment_service.writer.storage_writer import StorageWriter
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually


@pytest.fixture
async def kit() -> ContainerKit:
    """Tier 2 has a segment ``s``."""
    kit = ContainerKit()
    kit.write_to_tier2()
    container = await kit.open()
    await container.create_segment("s")
    await container.append("s", [b"bytes"])
    await flushed(container)
    await container.stop()
    return kit


async def flushed(container: SegmentContainer) -> None:
    found = container.metadata.by_name("s")
    assert found is not None
    await eventually(lambda: found.storage_length == found.length, "a flush")


async def opened_without_cache(kit: ContainerKit) -> SegmentContainer:
    """An owner that has nothing but Tier 2 to read from."""
    container = await kit.open()
    await flushed(container)
    assert kit.cache is not None
    kit.cache.trim(0)
    return container


async def delete_all(kit: ContainerKit) -> None:
    """A later owner deletes the segment, and nothing of it is left in Tier 2."""
    kit.write_to_tier2()
    container = await kit.open()
    await container.delete("s")
    storage = container._storage  # private: it collects only when asked
    assert isinstance(storage, RollingStorage)
    prefixes = (storage.layout.manifests, storage.layout.chunks)
    while any(name.startswith(prefixes) for name in kit.stored.objects):
        await storage.garbage.collect()
        await asyncio.sleep(0)
    await container.stop()


async def test_a_read_is_refused(kit: ContainerKit) -> None:
    zombie = await opened_without_cache(kit)
    await delete_all(kit)
    with pytest.raises(Fenced):
        await zombie.read("s", 0, 5)
    assert not zombie.metadata.quarantine
    await zombie.stop()


async def test_the_storage_writer_ends(kit: ContainerKit) -> None:
    kit.write_to_tier2(WriterConfig(flush_age_s=3600, tick_s=0.01, retry_delay_min_s=0.01))
    zombie = await kit.open()
    writer = zombie._writer  # private: it shall write only when it is asked
    assert isinstance(writer, StorageWriter)
    await writer.flush(zombie.durable_log.last_durable)
    await zombie.append("s", [b"more"])
    await delete_all(kit)
    kit.chunks.stop()
    flush = asyncio.ensure_future(writer.flush(zombie.durable_log.last_durable))
    calls = kit.chunks.calls
    await eventually(lambda: kit.chunks.calls > calls, "a write that fails, after which the writer looks again")
    kit.chunks.resume()
    with pytest.raises(Fenced):
        await asyncio.wait_for(zombie.wait_stopped(), 5)
    assert not zombie.metadata.quarantine
    await asyncio.wait((flush,))
    assert flush.exception() is not None


async def test_what_works_in_the_background_ends(kit: ContainerKit) -> None:
    zombie = await kit.open()
    await delete_all(kit)
    found = zombie.metadata.by_name("s")
    assert found is not None
    zombie._quarantine(found.segment_id, 0, 5, SegmentDamaged(found.segment_id, "gone"))  # private: as the sweep does
    with pytest.raises(Fenced):
        await asyncio.wait_for(zombie.wait_stopped(), 5)
    assert not zombie.metadata.quarantine


async def test_damage_is_believed_once_tier_1_answers(kit: ContainerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    container = await opened_without_cache(kit)
    for name in [name for name in kit.stored.objects if "/d/" in name]:
        await kit.stored.delete_all([name])
    check_owner = container.durable_log.check_owner
    calls = 0

    async def answers_the_third_time() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise Unavailable("Tier 1 is away")
        await check_owner()

    monkeypatch.setattr(container.durable_log, "check_owner", answers_the_third_time)
    for error in (Unavailable, Unavailable, SegmentDamaged):
        assert not container.metadata.quarantine
        with pytest.raises(error):
            await container.read("s", 0, 5)
    assert container.metadata.quarantine
    await container.stop()


async def test_an_idle_owner_that_was_overtaken_stops_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would answer reads for ever without what the later owner acknowledged."""
    monkeypatch.setattr(durable_log, "owner_look_s", 0.05)
    kit = ContainerKit()
    idle = await kit.open()
    await idle.create_segment("s")
    later = await kit.open()
    await later.append("s", [b"acknowledged"])
    await later.stop()
    with pytest.raises(Fenced):
        await asyncio.wait_for(idle.wait_stopped(), 5)


async def test_an_idle_owner_asks_again_when_it_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_log, "owner_look_s", 0.02)
    kit = ContainerKit()
    owner = await kit.open()
    asked = 0

    async def unavailable() -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("no answer")

    monkeypatch.setattr(owner.durable_log._log, "check_owner", unavailable)
    await eventually(lambda: asked >= 3, "three questions")
    assert owner.is_running
    await owner.stop()
