"""Health and metrics over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.contracts.data_log import Replication
from segment_service.host.listener import WireServer
from segment_service.status_page import StatusPage, StoreCollector
from tests.support.containers import ContainerKit
from tests.support.fakes.data_log import InMemoryDataLog
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore


class Page:
    def __init__(self) -> None:
        self.kit = ContainerKit()
        self.registry = ContainerRegistry()
        self.is_stale = False
        self.offline = {4: {"state": "failed", "reason": "Tier 1 was lost"}}
        store = InMemorySegmentStore()
        self.wire = WireServer(store, InMemoryTableStore(store), store, connections_max=100)
        cache = CacheManager(InMemoryCacheStorage())
        collector = StoreCollector(self.registry, self.kit.back_pressure, cache, self.wire)
        self.server = self._page(collector)
        self.warned = self._page(collector, "ulimit -n is low")

    def _page(self, collector: StoreCollector, warning: str = "") -> StatusPage:
        return StatusPage(
            "127.0.0.1",
            0,
            self.registry,
            collector,
            lambda: self.is_stale,
            lambda: self.offline,
            warning=warning,
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"http://127.0.0.1:{self.server.port}{path}")
            return answer.status, await answer.text()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    page = Page()
    await page.server.start()
    yield page
    await page.server.stop()
    for container in page.registry:
        await container.stop()


async def test_health_names_the_containers(page: Page) -> None:
    page.registry.add(await page.kit.open(3))
    status, text = await page.get("/health")
    running = {"state": "running", "epoch": 1}
    containers = {"3": running, "4": {"state": "failed", "reason": "Tier 1 was lost"}}
    assert (status, json.loads(text)) == (200, {"status": "up", "containers": containers})
    page.is_stale = True
    status, text = await page.get("/health")
    assert (status, json.loads(text)["status"]) == (503, "stale")


async def test_health_names_damaged_segments_with_the_reason(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    container.metadata.quarantine.hold(7, "scope/stream/0", "a chunk is missing")
    status, text = await page.get("/health")
    health = json.loads(text)
    assert (status, health["status"]) == (200, "degraded")
    assert health["damaged_segments"] == [{"container": 3, "segment": "scope/stream/0", "reason": "a chunk is missing"}]
    _, text = await page.get("/metrics")
    assert 'pravega_container_quarantined_segments{container="3"} 1.0' in text.splitlines()
    container.metadata.quarantine.free(7)
    assert json.loads((await page.get("/health"))[1])["status"] == "up"


async def test_health_says_what_the_operator_should_change_and_stays_up(page: Page) -> None:
    page.server, plain = page.warned, page.server
    await page.server.start()
    status, text = await page.get("/health")
    assert (status, json.loads(text)["status"], json.loads(text)["warning"]) == (200, "up", "ulimit -n is low")
    await page.server.stop()
    page.server = plain
    assert "warning" not in json.loads((await page.get("/health"))[1])


async def test_metrics_show_what_happens(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    await container.create_segment("s")
    await container.append("s", [bytes(1_000)])
    status, text = await page.get("/metrics")
    assert status == 200
    lines = text.splitlines()
    for line in (
        "pravega_store_unflushed_bytes 1000.0",
        "pravega_store_connections 0.0",
        "pravega_store_connections_limit 100.0",
        "pravega_store_refused_connections_total 0.0",
        'pravega_container_unflushed_bytes{container="3"} 1000.0',
        'pravega_container_segments{container="3"} 1.0',
        'pravega_container_operations_total{container="3"} 3.0',
        'pravega_container_checkpoints_total{container="3"} 1.0',
    ):
        assert line in lines, text


async def test_health_names_plog_servers_that_are_out(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    log = container.durable_log._log
    assert isinstance(log, InMemoryDataLog)
    log.replication_now = Replication(2, {"h:1": "it lost its data"})
    status, text = await page.get("/health")
    health = json.loads(text)
    assert (status, health["status"], health["plog_servers_out"]) == (200, "degraded", {"h:1": "it lost its data"})
    _, text = await page.get("/metrics")
    assert 'pravega_container_under_replicated_plogs{container="3"} 2.0' in text
    assert 'pravega_container_plog_servers_out{container="3"} 1.0' in text
