"""Serves health and metrics of a store over HTTP.

``GET /health``: JSON; ``status`` is "up", "degraded", or "down" when a problem stops the work, and ``problems`` says
why and what to do. ``GET /health/ready``: the problems alone. Both answer 200 while the store does its work, 503 when
not. ``GET /health/live``: 200 while the process is worth keeping. ``GET /metrics``: Prometheus text.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pravega_common.errors import ConfigurationError
from pravega_common.services.base import Service
from pravega_common.services.http_connections import ConnectionLimits, HttpDoor
from pravega_common.services.problems import is_ready
from segment_service.container.registry import ContainerRegistry
from segment_service.health.collector import StoreCollector
from segment_service.health.disk_space import DiskSpace
from segment_service.health.store_health import StoreHealth

request_bytes_max: Final = 64 * 1024
stop_grace_s: Final = 2.0
connections_max: Final = 256
"""Connections to the page; each may take 10 s for its first request, and be idle for 30 s."""
connections_per_host_max: Final = 64
"""Those of one host: what monitors a store needs two or three."""
damaged_segments_max: Final = 1_000
"""Damaged segments that ``/health`` lists; ``/metrics`` counts all."""


class StatusPage(Service):
    """Serves the paths. ``port`` is the bound one after the start."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: ContainerRegistry,
        collector: StoreCollector,
        health: StoreHealth,
        not_serving: Callable[[], Mapping[int, Mapping[str, str]]],
        *,
        tls: ssl.SSLContext | None = None,
        disks: DiskSpace | None = None,
    ) -> None:
        """``disks``: what the collector tells of, brought up to date before each answer."""
        super().__init__("status-page")
        self.host = host
        self.port = port
        self._containers = registry
        self._health = health
        self._disks = disks
        self._not_serving = not_serving
        self.limits = ConnectionLimits(connections_max, connections_per_host_max)
        self._door = HttpDoor(host, port, self.limits, self._application, tls=tls, stop_grace_s=stop_grace_s)
        self._metrics = CollectorRegistry(auto_describe=False)
        self._metrics.register(collector)
        ProcessCollector(registry=self._metrics)

    async def on_start(self) -> None:
        try:
            await self._door.start()
        except OSError as error:
            raise ConfigurationError(
                f"store.metrics = '{self.host}:{self.port}': cannot listen there ({error})"
            ) from error
        self.own(self._door)
        self.port = self._door.port

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=request_bytes_max, middlewares=[self.limits.began])
        application.add_routes(
            [
                web.get("/health", self._get_health),
                web.get("/health/ready", self._get_ready),
                web.get("/health/live", self._get_live),
                web.get("/metrics", self._get_metrics),
            ]
        )
        return application

    async def on_stop(self) -> None:
        await self._door.stop()

    async def _get_health(self, _request: web.Request) -> web.Response:
        problems = self._health.problems()
        ready = is_ready(problems)
        body: dict[str, Any] = {
            "status": "up" if not problems else "degraded" if ready else "down",
            "ready": ready,
            "live": self._health.is_alive,
            "problems": [problem.to_json() for problem in problems],
            "containers": {
                **{str(container_id): dict(state) for container_id, state in self._not_serving().items()},
                **{str(one.container_id): {"state": one.state.value, "epoch": one.epoch} for one in self._containers},
            },
        }
        damaged = [
            {"container": one.container_id, "segment": name, "reason": reason}
            for one in self._containers
            for name, reason in one.metadata.damaged_segments()
        ]
        if damaged:
            body["damaged_segments"] = damaged[:damaged_segments_max]
        servers_out = self._health.servers_out()
        if servers_out:
            body["plog_servers_out"] = servers_out
        return web.json_response(body, status=200 if ready else 503)

    async def _get_ready(self, _request: web.Request) -> web.Response:
        problems = self._health.problems()
        ready = is_ready(problems)
        body = {"ready": ready, "problems": [problem.to_json() for problem in problems]}
        return web.json_response(body, status=200 if ready else 503)

    async def _get_live(self, _request: web.Request) -> web.Response:
        alive, late_s = self._health.is_alive, self._health.loop_lag.recent_max_s
        return web.json_response({"live": alive, "loop_lag_s": round(late_s, 3)}, status=200 if alive else 503)

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        if self._disks is not None:
            await self._disks.look()
        return web.Response(body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})
