"""Listens for the REST calls of a controller: ping, health and metrics here, administration in ``admin.py``."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from controller_service.api.grpc.parts import ApiParts
from controller_service.api.rest.admin import AdminRoutes, map_errors
from controller_service.api.rest.health import HealthRegistry
from pravega_common.errors import ConfigurationError
from pravega_common.services.base import Service
from pravega_common.services.settings import host_and_port

request_bytes_max: Final = 1024 * 1024
stop_grace_s: Final = 5.0


class RestServer(Service):
    """``port`` is the bound one after the start."""

    def __init__(self, listen: str, health: HealthRegistry, parts: ApiParts) -> None:
        super().__init__("rest-server")
        self._listen = listen
        self._health = health
        self._parts = parts
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def on_start(self) -> None:
        application = web.Application(client_max_size=request_bytes_max, middlewares=[map_errors])
        application.add_routes(HealthRoutes(self._health).routes())
        application.add_routes(AdminRoutes(self._parts).routes())
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=stop_grace_s)
        await self._runner.setup()
        host, port = host_and_port(self._listen)
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(f"rest = {self._listen!r}: cannot listen there ({error})") from error
        self.port = self._runner.addresses[0][1]

    async def on_stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class HealthRoutes:
    def __init__(self, health: HealthRegistry) -> None:
        self._health = health

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/ping", self._ping),
            web.get("/metrics", self._metrics),
            web.get("/v1/health", self._result),
            *(
                web.get(f"/v1/health/{aspect}{suffix}", handler)
                for aspect, handler in (
                    ("readiness", self._readiness),
                    ("liveness", self._liveness),
                    ("status", self._status),
                    ("details", self._details),
                )
                for suffix in ("", "/{id}")
            ),
            web.get("/v1/health/{id}", self._result),
        ]

    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _find(self, request: web.Request) -> dict[str, object]:
        name = request.match_info.get("id")
        result = self._health.overall() if name is None else self._health.result(name)
        if result is None:
            raise web.HTTPNotFound
        return result

    async def _result(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request))

    async def _readiness(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request)["readiness"])

    async def _liveness(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request)["liveness"])

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request)["status"])

    async def _details(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request)["details"])
