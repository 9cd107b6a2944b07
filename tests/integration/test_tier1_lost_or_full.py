"""A real Redis that comes back older or empty, belongs to another cluster, or is full; Tier 2 is a directory.

Each of these was found to serve wrong bytes, or never to come back, before logs had an identity and full servers a way
out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from tests.support.containers import read_all
from tests.support.eventually import eventually
from tests.support.redis_kit import RedisKit
from tests.support.servers import RedisServer, running_redis

block_bytes = 100_000
room_bytes = 12_000_000
starts = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with running_redis(folder) as server:
        yield server


@pytest.fixture
async def kit(server: RedisServer, tmp_path: Path) -> AsyncIterator[RedisKit]:
    kit = RedisKit(server, tmp_path / "tier2", CheckpointPolicy(operations_max=100_000, bytes_max=4_000_000))
    await kit.start()
    yield kit
    await kit.close()


async def append(container: SegmentContainer, data: bytes) -> None:
    await container.append("s", [data])
    found = container.metadata.by_name("s")
    assert found is not None
    await eventually(lambda: found.storage_length == found.length, "a flush")


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def assert_refused(kit: RedisKit, tier2: Path, message: str) -> None:
    before = files(tier2)
    for _ in range(starts):
        container = kit.make()
        with pytest.raises(DataCorruption, match=message):
            await container.start()
    assert files(tier2) == before


async def test_an_older_append_only_file_is_refused(kit: RedisKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await append(container, b"A" * 1000)
    await crash(container)
    await asyncio.to_thread(kit.back_up, tmp_path / "backup")
    container = await kit.open()
    await append(container, b"B" * 1000)
    await container.stop()
    await asyncio.to_thread(kit.restore, tmp_path / "backup")
    await assert_refused(kit, tmp_path / "tier2", "an older copy of Tier 1 came back")


async def test_an_older_file_of_the_same_epoch_is_refused(kit: RedisKit, tmp_path: Path) -> None:
    """It is found before anything is read or acknowledged: once it was the first flush, and reads gave A+C before."""
    container = await kit.open()
    await container.create_segment("s")
    await append(container, b"A" * 1000)
    await asyncio.to_thread(kit.back_up, tmp_path / "backup")
    await append(container, b"B" * 1000)
    await crash(container)
    await asyncio.to_thread(kit.restore, tmp_path / "backup")
    await assert_refused(kit, tmp_path / "tier2", "the log ends at operation")


async def test_an_emptied_redis_is_refused(kit: RedisKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await append(container, b"old bytes")
    await container.stop()
    await asyncio.to_thread(kit.restore, None)
    await kit.register()
    await assert_refused(kit, tmp_path / "tier2", "Tier 1 was lost: the log is empty, but Tier 2 has a mark of epoch 1")


async def test_the_redis_of_another_cluster_is_refused(kit: RedisKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await append(container, b"bytes")
    await container.stop()
    (tmp_path / "redis2").mkdir()
    with running_redis(tmp_path / "redis2") as second:
        other = RedisKit(second, tmp_path / "tier2b")
        await other.start()
        container = await other.open()
        await container.create_segment("s")
        await container.stop()
        other.chunks = kit.chunks
        await assert_refused(other, tmp_path / "tier2", "another log came back")
        await other.close()


async def fill(container: SegmentContainer, appends: Sequence[asyncio.Future[int]] = ()) -> list[asyncio.Future[int]]:
    """Append until the server refuses to take more; all appends, with those that were made before."""
    appends = list(appends)
    while not container.durable_log.is_full:
        appends.append(container.append("s", [b"%08d" % len(appends) + bytes(block_bytes - 8)]))
        await asyncio.sleep(0.002)
        assert container.failure is None and len(appends) < 1000
    return appends


async def content_numbers(container: SegmentContainer) -> list[int]:
    content = await read_all(container, "s")
    return [int(content[at : at + 8]) for at in range(0, len(content), block_bytes)]


@pytest.mark.parametrize("checkpoint_bytes", [4_000_000, 1 << 40])
async def test_a_full_redis_goes_on_when_tier2_is_back(kit: RedisKit, checkpoint_bytes: int) -> None:
    """Longer than a log heals, also if there is no checkpoint at which anything could be freed."""
    kit.config = type(kit.config)(CheckpointPolicy(100_000, checkpoint_bytes), kit.config.storage_retry_s)
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    kit.limit_memory(room_bytes)
    appends = await fill(container)
    await asyncio.sleep(2.5)
    while appends[-1].done():  # The server had buffers of its own to give back.
        appends = await fill(container, appends)
        await asyncio.sleep(2.5)
    assert container.failure is None
    kit.chunks.resume()
    assert await asyncio.gather(*appends) == [block_bytes * (number + 1) for number in range(len(appends))]
    assert container.epoch == 1
    assert await content_numbers(container) == list(range(len(appends)))
    await eventually(lambda: kit.used_memory < kit._memory("maxmemory") - room_bytes // 2, "Tier 1 is freed")
    await container.stop()


@pytest.mark.parametrize("checkpoint_bytes", [4_000_000, 1 << 40])
async def test_a_container_starts_on_a_full_redis(kit: RedisKit, checkpoint_bytes: int) -> None:
    kit.config = type(kit.config)(CheckpointPolicy(100_000, checkpoint_bytes), kit.config.storage_retry_s)
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    kit.limit_memory(room_bytes)
    appends = await fill(container)
    await crash(container)
    acknowledged = [one for one in appends if one.exception() is None]
    kit.limit_memory(-1_000_000)
    container = kit.make()
    start = asyncio.ensure_future(container.start())
    await eventually(lambda: "Tier 2" in container.waits_for, "the start waits for Tier 2")
    assert not start.done()
    kit.chunks.resume()
    await asyncio.wait_for(start, 20)
    numbers = await content_numbers(container)
    assert numbers == list(range(len(numbers))) and len(numbers) >= len(acknowledged)
    await asyncio.wait_for(container.append("s", [b"%08d" % len(numbers) + bytes(block_bytes - 8)]), 20)
    await eventually(lambda: kit.used_memory < kit._memory("maxmemory"), "Tier 1 is freed")
    await container.stop()
    container = await kit.open()
    assert len(await content_numbers(container)) == len(numbers) + 1
    await container.stop()


def fill_up(kit: RedisKit) -> None:
    for number in range(5):
        kit.server.call("SET", f"filler-{number}", "x" * 1_000_000)
    kit.limit_memory(-2_000_000)


async def test_a_new_container_starts_on_a_full_redis(kit: RedisKit) -> None:
    fill_up(kit)
    container = await asyncio.wait_for(kit.open(), 20)
    await container.stop()


async def test_control_writes_find_room_on_a_full_server(kit: RedisKit) -> None:
    cpo = kit.cpo
    fill_up(kit)
    with pytest.raises(PravegaError, match="used memory"):
        await cpo._write("SET", "x", "y" * 1000)  # private: the server is really full
    assert await cpo.take_epoch(5, "store") == 1
    await cpo.put_metadata_plog(5, 1, None, "cluster/group/one")
    assert await cpo.get_metadata_plog(5) == "cluster/group/one"
    assert await cpo.set_once("constant", "1") == "1"
    await cpo.renew_lease("kind", "member", {"a": 1}, 10_000)
    assert await cpo.members("kind") == {"member": {"a": 1}}
    assert await cpo.try_lead("role", "member", 10_000)
    assert await cpo.try_lock("lock", "member", 10_000)
    assert await cpo.put_assignment(0, {1: "store"}) == 1
    await cpo.add_task("member", "task", {"b": 2})
    assert await cpo.move_task("task", "member", "other")
    await cpo.put_persistence_cluster(PersistenceCluster("c", (PersistenceGroup("g", ("h:1",)),)))
    await cpo.release_lease("kind", "member")
    await cpo.resign("role", "member")
    await cpo.unlock("lock", "member")
