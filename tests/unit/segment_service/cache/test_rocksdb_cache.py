"""The second level on a real RocksDB, alone and behind a read index."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from segment_service.cache import rocksdb_cache
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.cache.rocksdb_cache import RocksDBSecondLevel
from segment_service.contracts.second_level_cache import SegmentKey
from segment_service.read_index.container_read_index import ContainerReadIndex
from tests.support.fakes.container_without_log import container, joined

KEY = SegmentKey(1, 7)
OTHER = SegmentKey(2, 7)
BUDGET = 1_000_000


@pytest.fixture
async def level(tmp_path: Path) -> AsyncIterator[RocksDBSecondLevel]:
    level = RocksDBSecondLevel(tmp_path / "cache", BUDGET)
    await level.start()
    yield level
    await level.stop()
    assert level.failure is None


async def test_what_was_offered_is_found(level: RocksDBSecondLevel) -> None:
    data = random.Random(1).randbytes(50_000)
    level.offer(KEY, 1_000, memoryview(data))
    await level.drained()
    assert level.covered_to(KEY, 999) is None
    assert level.covered_to(KEY, 1_000) == level.covered_to(KEY, 50_999) == 51_000
    assert level.covered_to(KEY, 51_000) is None
    assert level.covered_to(OTHER, 1_000) is None
    assert await level.read(KEY, 1_100, 300) == data[100:400]
    assert await level.read(KEY, 50_000, 1_001) is None
    level.forget(KEY)
    assert await level.read(KEY, 1_100, 300) is None
    assert level.bytes_used == 0


async def test_a_folder_with_something_else_is_refused_and_left(tmp_path: Path) -> None:
    """It is emptied at each start: who names a home or a mounted disk must not lose it."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "thesis.tex").write_text("years")
    level = RocksDBSecondLevel(tmp_path, BUDGET)
    with pytest.raises(ConfigurationError, match=r"has what is no cache \(photos, thesis\.tex\): choose another"):
        await level.start()
    await level.stop()
    assert (tmp_path / "thesis.tex").read_text() == "years" and (tmp_path / "photos").is_dir()


async def test_what_a_killed_store_left_is_emptied(tmp_path: Path) -> None:
    for name in ("000004.log", "000123.sst", "LOG.old.1767000000", "MANIFEST-000005", "rocksdict-config.json", "LOCK"):
        (tmp_path / name).write_text("of another run")
    level = RocksDBSecondLevel(tmp_path, BUDGET)
    await level.start()
    assert not (tmp_path / "000123.sst").exists()
    await level.stop()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    level = RocksDBSecondLevel(tmp_path / "file" / "cache", BUDGET)
    with pytest.raises(ConfigurationError, match=r"file/cache cannot be written \(Not a directory\): choose another"):
        await level.start()
    await level.stop()


async def test_a_damaged_block_is_not_given_out(level: RocksDBSecondLevel) -> None:
    data = bytearray(random.Random(2).randbytes(50_000))
    level.offer(KEY, 0, memoryview(data))
    await level.drained()
    assert await level.read(KEY, 0, 50_000) == bytes(data)
    data[49_000] ^= 4
    level._put((1).to_bytes(8, "big"), bytes(data))  # private: a bit flips on the disk
    assert await level.read(KEY, 0, 10) is None
    assert level.covered_to(KEY, 0) is None
    assert level.bytes_used == 0


async def test_the_oldest_leave_when_the_budget_is_used(level: RocksDBSecondLevel) -> None:
    for number in range(30):
        level.offer(KEY, number * 100_000, memoryview(bytes([number]) * 100_000))
        await level.drained()
    assert level.bytes_used == BUDGET
    assert await level.read(KEY, 19 * 100_000, 10) is None
    assert await level.read(KEY, 20 * 100_000, 10) == bytes([20]) * 10


async def test_a_slow_disk_drops_what_is_offered(level: RocksDBSecondLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_cache, "queued_bytes_max", 250_000)
    for number in range(5):
        level.offer(KEY, number * 100_000, memoryview(bytes(100_000)))
    await level.drained()
    assert level.bytes_used == 200_000
    assert level.bytes_dropped == 300_000


async def test_small_and_known_blocks_are_not_written(level: RocksDBSecondLevel) -> None:
    level.offer(KEY, 0, memoryview(bytes(100)))
    level.offer(KEY, 0, memoryview(bytes(20_000)))
    level.offer(KEY, 0, memoryview(bytes(20_000)))
    await level.drained()
    assert level.bytes_used == 20_000


async def test_nothing_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        level = RocksDBSecondLevel(tmp_path / "cache", BUDGET)
        await level.start()
        assert level.covered_to(KEY, 0) is None
        level.offer(KEY, 0, memoryview(bytes(20_000)))
        await level.drained()
        await level.stop()
        assert not (tmp_path / "cache").exists()


async def test_a_database_that_fails_only_forgets(level: RocksDBSecondLevel) -> None:
    level.offer(KEY, 0, memoryview(bytes(20_000)))
    await level.drained()
    level._database.close()  # private: the only way to make the database fail
    assert await level.read(KEY, 0, 10) is None
    level.offer(OTHER, 0, memoryview(bytes(20_000)))
    await level.drained()
    assert level.covered_to(OTHER, 0) is None
    assert level.is_running


async def test_evicted_blocks_are_read_back_without_asking_tier_2(level: RocksDBSecondLevel) -> None:
    async with container() as c:
        c.cache = CacheManager(InMemoryCacheStorage(1_000_000), level)
        c.index = ContainerReadIndex(c.metadata, c.storage, c.cache, level.spawn, c.check_owner)
        s, merged = c.create("s"), c.create("m")
        data = random.Random(2).randbytes(200_000)
        c.append(s, data)
        await c.flush(s)
        c.append(merged, data)
        await c.flush(merged)
        c.evict()
        await level.drained()
        assert joined((await c.index.read(s, 0, 1_000_000)).data) == data
        assert joined((await c.index.read(s, 150_000, 10)).data) == data[150_000:150_010]
        c.merge(s, merged)
        assert joined((await c.index.read(s, 199_000, 1_000_000)).data) == data[199_000:] + data
        assert c.storage.reads == []
        c.delete(s)
        assert level.covered_to(SegmentKey(0, s), 0) is None
        c.index.close()
