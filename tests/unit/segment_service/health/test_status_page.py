"""Health and metrics over real HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from pravega_common.errors import ConfigurationError, PravegaError, SegmentNotFound
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.loop_lag import LoopLag
from pravega_common.services.problems import Problem
from segment_service import tier1_memory_watch as memory_watch
from segment_service import tier1_settings_watch as settings_watch
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.contracts.attributes import AttributeUpdate, AttributeUpdateType
from segment_service.contracts.data_log import Replication
from segment_service.health.collector import StoreCollector
from segment_service.health.status_page import StatusPage
from segment_service.health.store_health import ClusterPlace, StoreHealth
from segment_service.host.listener import WireServer
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.measured_chunks import MeasuredChunkStorage
from segment_service.traffic.busiest_streams import BusiestStreams, StreamTraffic
from tests.support.containers import ContainerKit
from tests.support.event_writers import hold_few, writer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.data_log import InMemoryDataLog
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore


class Page:
    def __init__(self) -> None:
        self.kit = ContainerKit()
        self.registry = ContainerRegistry()
        self.lease_left_s = 10.0
        self.offline: dict[int, dict[str, str]] = {}
        self.silent: dict[str, float] = {}
        self.certificate: list[Problem] = []
        self.clock = ManualClock()
        self.tier2_faults = FaultyChunkStorage(InMemoryChunkStorage(), random.Random(3), self.clock)
        self.tier2 = MeasuredChunkStorage(self.tier2_faults, self.clock)
        self.loop_lag = LoopLag(self.clock)
        store = InMemorySegmentStore()
        self.wire = WireServer(store, InMemoryTableStore(store), store, connections_max=100)
        self.groups = ChoiceByUse((PersistenceGroup("group-0", ("a:1", "b:1", "c:1")),))
        self.streams = BusiestStreams(streams_max=2)
        self.clock_problem: Problem | None = None
        self.server = self._page()

    def _page(self, warning: str = "", port: int = 0) -> StatusPage:
        cache = CacheManager(InMemoryCacheStorage())
        parts = (
            self.registry,
            self.kit.back_pressure,
            cache,
            self.wire,
            self.tier2,
            self.loop_lag,
            self.groups,
            self.streams,
        )
        health = StoreHealth(
            lambda: ClusterPlace(self.lease_left_s, self.offline, self.clock_problem),
            self.registry,
            self.groups.needed,
            lambda server: self.silent.get(server, 0.0),
            self.tier2,
            self.kit.back_pressure,
            self.loop_lag,
            warning,
            lambda: self.certificate,
        )
        return StatusPage("127.0.0.1", port, self.registry, StoreCollector(*parts), health, lambda: self.offline)

    async def warn(self, warning: str) -> None:
        """Go on with a page of a store whose machine should be changed."""
        await self.server.stop()
        self.server = self._page(warning)
        await self.server.start()

    async def take(self, port: int) -> None:
        """Start one more page at this port."""
        await self._page(port=port).start()

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


async def test_a_taken_port_is_named_with_its_setting(page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match=rf"store.metrics = '127\.0\.0\.1:{port}': cannot listen there"):
            await page.take(port)


async def problems(page: Page, status_expected: int) -> list[str]:
    """The codes of what ``/health/ready`` names."""
    status, text = await page.get("/health/ready")
    answer = json.loads(text)
    assert (status, answer["ready"]) == (status_expected, status_expected == 200), answer
    assert all(problem["text"] and problem["remedy"] for problem in answer["problems"])
    return [problem["code"] for problem in answer["problems"]]


async def test_health_names_the_containers(page: Page) -> None:
    page.registry.add(await page.kit.open(3))
    running = {"state": "running", "epoch": 1}
    up = {"status": "up", "ready": True, "live": True, "problems": [], "containers": {"3": running}}
    status, text = await page.get("/health")
    assert (status, json.loads(text)) == (200, up)
    page.offline = {4: {"state": "failed", "reason": "Tier 1 was lost"}}
    status, text = await page.get("/health")
    health = json.loads(text)
    assert (status, health["status"], health["ready"]) == (503, "down", False)
    assert health["containers"] == {"3": running, "4": {"state": "failed", "reason": "Tier 1 was lost"}}
    assert "Tier 1 was lost" in health["problems"][0]["text"]


async def test_a_store_without_a_lease_is_not_ready(page: Page) -> None:
    assert await problems(page, 200) == []
    page.lease_left_s = -3.0
    assert await problems(page, 503) == ["lease-lost"]


async def test_a_clock_that_differs_is_named_and_stops_nothing(page: Page) -> None:
    page.clock_problem = Problem("clock-differs", "the clock is 60 s ahead", "set it", stops_work=False)
    assert await problems(page, 200) == ["clock-differs"]


async def test_a_container_that_starts_is_not_ready(page: Page) -> None:
    page.offline = {4: {"state": "starting", "waits_for": "Tier 2"}}
    assert await problems(page, 503) == ["container-starting"]


async def test_a_group_is_as_silent_as_its_majority(page: Page) -> None:
    page.silent = {"a:1": 4.0}
    assert await problems(page, 200) == []
    page.silent = {"a:1": 6.0}
    assert await problems(page, 200) == ["tier1-silent"]
    page.silent["c:1"] = 6.0
    assert await problems(page, 503) == ["tier1-silent"]


async def test_a_silent_group_is_a_problem_while_the_settings_name_it_or_a_log_lies_there(page: Page) -> None:
    page.groups.saw(PersistenceCluster("main", (PersistenceGroup("drained", ("d:1",)),)))
    page.silent = {"d:1": 6.0}
    metric = 'pravega_store_tier1_silent_seconds{server="d:1"}'
    assert await problems(page, 200) == []
    assert metric not in (await page.get("/metrics"))[1]
    container = await page.kit.open(3)
    page.registry.add(container)
    log = container.durable_log._log
    assert isinstance(log, InMemoryDataLog)
    log.groups = {"drained"}
    assert await problems(page, 503) == ["tier1-silent"]
    assert metric in (await page.get("/metrics"))[1]


@pytest.mark.parametrize(
    ("held_by", "words"),
    [(memory_watch.HELD_BY, "maxmemory"), (settings_watch.HELD_BY, "settings"), ("cache", "speed")],
)
async def test_the_remedy_of_waiting_appends_is_that_of_what_holds_them(page: Page, held_by: str, words: str) -> None:
    page.kit.back_pressure.hold(held_by, True)
    _, text = await page.get("/health/ready")
    (problem,) = json.loads(text)["problems"]
    assert problem["code"] == "appends-wait" and held_by in problem["text"] and words in problem["remedy"]


async def test_appends_that_wait_for_the_limit_on_operations_are_not_said_to_wait_for_bytes(page: Page) -> None:
    """The text was "0 MiB wait for Tier 2"."""
    pressure = page.kit.back_pressure
    pressure.operations_changed(pressure.operations_max)
    _, text = await page.get("/health/ready")
    (problem,) = json.loads(text)["problems"]
    assert problem["code"] == "appends-wait" and f"{pressure.operations_max} operations" in problem["text"]


async def test_frames_that_nobody_acknowledges_are_named(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    page.kit.logs.faults.hold()
    waiting = asyncio.ensure_future(container.create_segment("s"))
    processor = container.durable_log._processor
    assert processor is not None
    await eventually(lambda: bool(processor._in_flight), "a frame on its way")
    assert await problems(page, 200) == []
    processor._in_flight[0].sent_s -= 6.0
    assert await problems(page, 503) == ["tier1-not-acknowledging"]
    page.kit.logs.faults.release()
    await waiting
    assert await problems(page, 200) == []


async def test_a_full_tier1_is_named_with_a_remedy_for_servers_and_for_files(page: Page) -> None:
    """A standalone with Tier 1 in files on a full disk was told to look at its Redis servers, which it has none of."""
    container = await page.kit.open(3)
    page.registry.add(container)
    await container.create_segment("s")
    page.kit.logs.faults.capacity_bytes = 1
    waiting = asyncio.ensure_future(container.append("s", [bytes(1_000)]))
    await eventually(lambda: container.durable_log.is_full, "a full Tier 1")
    assert await problems(page, 503) == ["tier1-full"]
    _, text = await page.get("/health/ready")
    problem = json.loads(text)["problems"][0]
    assert problem["text"] == "containers 3: Tier 1 has no room, appends wait"
    assert "maxmemory of Redis" in problem["remedy"] and "Tier 1 in files, make room on their disk" in problem["remedy"]
    page.kit.logs.faults.capacity_bytes = 0
    await waiting


async def test_tier2_that_fails_for_long_is_named_and_forgotten_when_it_answers(page: Page) -> None:
    page.tier2_faults.stop()
    for waited_s, expected in ((0.0, []), (9.0, []), (2.0, ["tier2-failing"])):
        await page.clock.advance(waited_s)
        with pytest.raises(PravegaError):
            await page.tier2.put("o", [b"x"])
        assert await problems(page, 503 if expected else 200) == expected
    page.tier2_faults.resume()
    with pytest.raises(SegmentNotFound):  # an answer as good as another
        await page.tier2.info("missing")
    assert await problems(page, 200) == []


async def test_a_certificate_that_ends_degrades(page: Page) -> None:
    ends = Problem("certificate-ends", "the certificate ends in 3 days", "replace it", stops_work=False)
    page.certificate = [ends, replace(ends, code="certificate-refused")]
    assert await problems(page, 200) == ["certificate-ends", "certificate-refused"]


async def test_a_loop_that_is_late_degrades_and_one_that_is_stuck_is_not_alive(page: Page) -> None:
    page.loop_lag._recent.append(2.0)
    assert await problems(page, 200) == ["loop-late"]
    assert (await page.get("/health/live"))[0] == 200
    page.loop_lag._recent.append(20.0)
    status, text = await page.get("/health/live")
    assert (status, json.loads(text)) == (503, {"live": False, "loop_lag_s": 20.0})


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


async def test_health_names_segments_whose_other_half_was_not_read(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    container.metadata.unread_pairs["scope/stream/0"] = "a block of a run is damaged"
    health = json.loads((await page.get("/health"))[1])
    assert [problem["code"] for problem in health["problems"]] == ["segments-damaged"]
    assert [one["reason"] for one in health["damaged_segments"]] == ["a block of a run is damaged"]
    assert 'pravega_container_quarantined_segments{container="3"} 1.0' in (await page.get("/metrics"))[1].splitlines()


async def test_health_says_what_the_operator_should_change_and_the_store_stays_ready(page: Page) -> None:
    await page.warn("ulimit -n is low")
    status, text = await page.get("/health")
    health = json.loads(text)
    assert (status, health["status"]) == (200, "degraded")
    assert [problem["text"] for problem in health["problems"]] == ["ulimit -n is low"]


async def test_metrics_show_what_happens(page: Page) -> None:
    container = await page.kit.open(3)
    page.registry.add(container)
    await container.create_segment("s")
    await container.append("s", [bytes(1_000)])
    page.streams.tick(
        {"scope/a": StreamTraffic(30, 3, 20), "scope/b": StreamTraffic(9), "scope/c": StreamTraffic(8)}, 1.0
    )
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
        'pravega_container_frame_seconds_count{container="3"} 3.0',
        'pravega_store_tier2_failures_total{call="put"} 0.0',
        "pravega_store_tier2_failing_seconds 0.0",
        'pravega_store_stream_in_bytes_total{stream="scope/a"} 30.0',
        'pravega_store_stream_in_events_total{stream="scope/a"} 3.0',
        'pravega_store_stream_out_bytes_total{stream="scope/a"} 20.0',
        'pravega_store_stream_in_bytes_total{stream="_other"} 8.0',
    ):
        assert line in lines, text


async def test_metrics_show_what_attribute_indexes_do(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_few(monkeypatch, 20, many_min=5)
    container = await page.kit.open(3)
    page.registry.add(container)
    await container.create_segment("s")
    updates = [AttributeUpdate(writer(number), AttributeUpdateType.REPLACE, 1) for number in range(50)]
    await container.append("s", [b"x"], updates)
    found = container.metadata.by_name("s")
    assert found is not None
    container.metadata.held.look(found)
    await eventually(lambda: container.attributes.evicted_total > 0)
    for number in (0, 1):
        assert await container.get_attribute("s", writer(number)) == 1
    _, text = await page.get("/metrics")
    attributes = container.attributes
    assert (attributes.evicted_total, attributes.read_total, attributes.look_ups_total) == (35, 2, 2)
    for line in (
        f'pravega_container_many_writers_attributes{{container="3"}} {len(found.attributes)}.0',
        'pravega_container_evicted_attributes_total{container="3"} 35.0',
        'pravega_container_read_attributes_total{container="3"} 2.0',
        'pravega_container_attribute_look_ups_total{container="3"} 2.0',
    ):
        assert line in text.splitlines(), text


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
