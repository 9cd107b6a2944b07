"""Tables and reads over a real container: log, recovery and read index, everything in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pravega_common.errors import BadKeyVersion
from pravega_common.runtime.clock import SystemClock
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import IdleWriter
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore

T = "scope/table"


@asynccontextmanager
async def running(logs: InMemoryLogStore, cache: CacheManager) -> AsyncIterator[SegmentContainer]:
    clock = SystemClock()
    chunks = InMemoryChunkStorage()
    storage = RollingStorage(chunks, 0, clock, background=False)
    container = SegmentContainer(
        InMemoryDataLog(0, logs),
        storage,
        SortedRunMaps(0, chunks, storage, clock),
        lambda metadata, storage, spawn, check_owner: ContainerReadIndex(metadata, storage, cache, spawn, check_owner),
        IdleWriter,
        StoreBackPressure(),
        clock,
    )
    await container.start()
    try:
        yield container
    finally:
        await container.stop()


async def test_an_extension_follows_its_container_through_restarts() -> None:
    logs, cache = InMemoryLogStore(), CacheManager(InMemoryCacheStorage(64 * 1024 * 1024))
    versions: list[int] = [NOT_EXISTS]
    async with running(logs, cache) as container:
        tables = TableExtension(container)
        await tables.create_table(T)
    for round_ in range(3):
        async with running(logs, cache) as container:
            again = TableExtension(container)
            for number in range(50):
                entry = TableEntry(b"key", b"%d-%d" % (round_, number), versions[-1])
                versions += await again.put(T, [entry])
                with pytest.raises(BadKeyVersion):
                    await again.put(T, [entry])
            [now] = await again.get(T, [b"key"])
            assert (now.value, now.version) == (b"%d-49" % round_, versions[-1])
    assert versions == sorted(set(versions))
    assert cache.storage.bytes_used == 0, "a stopped container gives its blocks back"


async def test_one_winner_over_a_container() -> None:
    logs, cache = InMemoryLogStore(), CacheManager(InMemoryCacheStorage(64 * 1024 * 1024))
    async with running(logs, cache) as container:
        tables = TableExtension(container)
        await tables.create_table(T)
        version = NOT_EXISTS
        for _ in range(20):
            puts = [tables.put(T, [TableEntry(b"key", b"%d" % writer, version)]) for writer in range(10)]
            results = await asyncio.gather(*puts, return_exceptions=True)
            [won] = [result for result in results if isinstance(result, list)]
            [version] = won
