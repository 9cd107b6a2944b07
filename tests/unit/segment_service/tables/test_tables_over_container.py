"""Tables and reads over a real container: log, recovery and read index, everything in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pravega_common.errors import BadKeyVersion, ContainerNotHosted
from pravega_common.runtime.clock import SystemClock
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.segment_store import SegmentProperties
from segment_service.contracts.table_store import NOT_EXISTS, TableEntry
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.sorted_runs.sorted_run_maps import SortedRunMaps
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.store import RoutedSegmentStore
from segment_service.tables import paging
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit, IdleWriter
from tests.support.eventually import eventually
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore
from tests.support.store_in_process import running_store

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


class Hosting:
    """Two containers in one store, and its tables."""

    def __init__(self) -> None:
        self.kit = ContainerKit()
        self.registry = ContainerRegistry()
        self.store = RoutedSegmentStore(self.registry, 2, lambda: False)
        self.tables = TableExtension(self.store, maps=self.store)
        self.forgetting: list[asyncio.Task[None]] = []
        self.registry.on_removed = lambda gone: self.forgetting.append(
            asyncio.ensure_future(self.tables.container_gone(gone))
        )

    async def open(self, container_id: int) -> SegmentContainer:
        container = await self.kit.open(container_id)
        self.registry.add(container)
        return container

    async def close(self, container: SegmentContainer) -> None:
        self.registry.remove(container)
        await container.stop()
        await asyncio.gather(*self.forgetting)

    def in_memory(self) -> tuple[list[str], int]:
        """The tables in memory, and the bytes of their values."""
        tables = self.tables
        assert sum(map(len, tables._tables_of.values())) == len(tables._tables)  # private: nothing else shows memory
        return sorted(tables._tables), tables._budget.bytes_used


async def test_the_tables_of_a_container_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ask for them here again."""
    monkeypatch.setattr(paging, "keys_in_memory_max", 9)
    hosting = Hosting()
    containers = [await hosting.open(0), await hosting.open(1)]
    names = [f"scope/table-{number}" for number in range(20)]
    for name in names:
        await hosting.tables.create_table(name)
        await hosting.tables.put(name, [TableEntry(b"%d" % number, bytes(100)) for number in range(5)])
    large = names[0]
    await hosting.tables.put(large, [TableEntry(b"%d" % number, bytes(100)) for number in range(5, 15)])
    await hosting.tables.table_info(large)
    staying = sorted(name for name in names if hosting.store.container_of(name) is containers[1])
    assert 0 < len(staying) < len(names)
    await hosting.close(containers[0])
    assert hosting.in_memory()[0] == staying
    with pytest.raises(ContainerNotHosted):
        await hosting.tables.get(next(name for name in names if name not in staying), [b"1"])
    containers[0] = await hosting.open(0)
    assert len(await hosting.tables.get(large, [b"%d" % number for number in range(15)])) == 15
    for container in containers:
        await hosting.close(container)
    assert hosting.in_memory() == ([], 0)
    assert not hosting.tables._tables_of  # private: it would keep the containers


async def test_a_call_that_meets_the_end_of_its_container_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hosting = Hosting()
    container = await hosting.open(0)
    name = next(name for name in map(str, range(9)) if hosting.store._route(name) == 0)  # private: which is here
    await hosting.tables.create_table(name)
    await hosting.tables.put(name, [TableEntry(b"key", bytes(100))])
    other = TableExtension(hosting.store)
    await other.put(name, [TableEntry(b"other", bytes(100))])  # so that the log must be read on
    looked_at, has_left, get_info = asyncio.Event(), asyncio.Event(), container.get_info

    async def late(segment: str) -> SegmentProperties:
        info = await get_info(segment)
        looked_at.set()
        await has_left.wait()
        return info

    monkeypatch.setattr(container, "get_info", late)
    read = asyncio.ensure_future(hosting.tables.get(name, [b"key"]))
    await looked_at.wait()
    hosting.registry.remove(container)
    await asyncio.gather(*hosting.forgetting)
    has_left.set()
    with pytest.raises(ContainerNotHosted):
        await read
    assert hosting.in_memory() == ([], 0)
    await container.stop()


async def test_a_store_whose_container_is_assigned_to_another_forgets_its_tables(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        process = store.process
        await eventually(lambda: len(process.registry) == 2, "both containers")
        await process.tables.create_table(T)
        await process.tables.put(T, [TableEntry(b"key", bytes(100))])
        assert process.tables._budget.bytes_used == 100  # private: memory is shown by nothing else
        version = (await store.cpo.get_assignment()).version
        await store.cpo.put_assignment(version, {0: "another", 1: "another"})
        await eventually(lambda: not process.tables._budget.bytes_used, "the end of the table's values in memory")
