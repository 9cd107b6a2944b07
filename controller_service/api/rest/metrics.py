"""Serves the metrics of a controller for Prometheus: its own numbers, read on request, and those of the process."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from controller_service.api.rest.health import HealthRegistry
from pravega_common.services.latency import latency_family
from pravega_common.services.problems import problem_family


class ControllerCollector(Collector):
    """The numbers of one controller that are not counted where they happen."""

    def __init__(self, health: HealthRegistry) -> None:
        self._health = health

    def collect(self) -> Iterator[Metric]:
        ready, judge = self._health.overall().readiness, self._health.judge
        yield GaugeMetricFamily("pravega_controller_ready", "1 while the controller does its work", value=float(ready))
        yield problem_family("pravega_controller_problem", () if judge is None else judge.problems())
        lag = () if judge is None else [((), judge.loop_lag.counts)]
        yield latency_family("pravega_controller_loop_lag_seconds", "How late the loop runs what is due", (), lag)
        ownerless = 0 if judge is None else len(judge.ownerless())
        text = "Containers that no live store owns"
        yield GaugeMetricFamily("pravega_controller_containers_without_store", text, value=ownerless)
        left_s = 0.0 if judge is None else judge.lease_left_s()
        text = "Seconds until the controller's lease ends; negative once it has"
        yield GaugeMetricFamily("pravega_controller_lease_left_seconds", text, value=left_s)


class MetricsPage:
    """``GET /metrics``."""

    def __init__(self, health: HealthRegistry) -> None:
        self._own = CollectorRegistry(auto_describe=False)
        self._own.register(ControllerCollector(health))

    async def get(self, request: web.Request) -> web.Response:
        body = generate_latest(self._own) + generate_latest(REGISTRY)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
