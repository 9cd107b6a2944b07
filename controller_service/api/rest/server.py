"""Listens for the REST calls of a controller, and serves the document that describes them with a page to try them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Collection, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from controller_service.api.grpc.access_guard import AccessControl
from controller_service.api.grpc.parts import ApiParts
from controller_service.api.refused_calls import RefusedCalls
from controller_service.api.rest.access_guard import access_guard
from controller_service.api.rest.admin import ReaderGroupOperations, ScopeOperations, StreamOperations
from controller_service.api.rest.audit_trail import RestAuditTrail
from controller_service.api.rest.doors import WebDoors
from controller_service.api.rest.errors import map_errors
from controller_service.api.rest.health import HealthOperations, HealthRegistry
from controller_service.api.rest.live import LIVE_ANSWERS, LiveAnswers
from controller_service.api.rest.metrics import MetricsPage
from controller_service.api.rest.openapi import document
from controller_service.api.rest.operation import RestOperation
from controller_service.api.rest.refusals import RestRefusals
from controller_service.api.rest.window import WindowOperations
from controller_service.watermarks.watermark_ages import WatermarkAges
from controller_service.window.page_routes import OWN_POLICY, page_routes
from controller_service.window.parts import WindowParts
from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.audit_log import AuditLog
from pravega_common.services.base import Service
from pravega_common.services.http_connections import ConnectionLimits, HttpDoor
from pravega_common.services.settings import host_and_port

connections_max_default: Final = 1_024
connections_per_peer_max_default: Final = 256
request_bytes_max: Final = 1024 * 1024
line_bytes_max: Final = 32 * 1024
"""The first line of a request: the window follows 50 streams in one, whose names and scopes have 255 characters."""
stop_grace_s: Final = 5.0
EXPLORER_FILES: Final = {
    "/docs": ("explorer.html", "text/html"),
    "/docs/explorer.js": ("explorer.js", "text/javascript"),
    "/docs/explorer.css": ("explorer.css", "text/css"),
}


class RestServer(Service):
    """``port`` is the bound one after the start."""

    def __init__(
        self,
        listen: str,
        health: HealthRegistry,
        parts: ApiParts,
        window: WindowParts,
        ages: WatermarkAges,
        tls: ssl.SSLContext | None = None,
        access: AccessControl | None = None,
        *,
        metrics_open: bool = False,
        names: Collection[str] = (),
        limits: ConnectionLimits | None = None,
        audit: AuditLog | None = None,
        refused: RefusedCalls | None = None,
    ) -> None:
        """``access``: None where everybody may do everything. ``metrics_open``: metrics for everybody all the same.
        ``names``: the host names by which the port may be called, besides that of ``listen`` and addresses.
        ``audit``: None for no record of requests that change something. ``refused``: whose refusals are held."""
        super().__init__("rest-server")
        self._guards: list[Any] = [] if access is None else [access_guard(access, metrics_open=metrics_open)]
        self._trail: list[Any] = [] if audit is None else [RestAuditTrail(audit, asks_names=access is not None).record]
        self.refused = refused or RefusedCalls(SystemClock())
        self._listen = listen
        self._doors = WebDoors((host_and_port(listen)[0], *names))
        self.limits = limits or ConnectionLimits(connections_max_default, connections_per_peer_max_default)
        self._tls = tls
        self.operations = all_operations(health, parts, window)
        self._metrics = MetricsPage(health, parts.known_subscribers, parts.known_sinks, ages)
        self._door: HttpDoor | None = None
        self.port = 0

    def application(self) -> web.Application:
        made = web.Application(
            client_max_size=request_bytes_max,
            middlewares=[
                self.limits.began,
                RestRefusals(self.refused).hold,
                self._doors.check,
                *self._trail,
                map_errors,
                *self._guards,
            ],
        )
        made.add_routes([operation.route() for operation in self.operations])
        made.add_routes(DescriptionRoutes(self.operations).routes())
        made.add_routes(page_routes())
        made.add_routes([web.get("/metrics", self._metrics.get)])
        made[LIVE_ANSWERS] = live = LiveAnswers()
        made.on_shutdown.append(live.end)
        return made

    async def on_start(self) -> None:
        host, port = host_and_port(self._listen)
        self._door = HttpDoor(
            host,
            port,
            self.limits,
            self.application,
            tls=self._tls,
            stop_grace_s=stop_grace_s,
            line_bytes_max=line_bytes_max,
        )
        try:
            await self._door.start()
        except OSError as error:
            raise ConfigurationError(f"rest = {self._listen!r}: cannot listen there ({error})") from error
        self.own(self._door)
        self.port = self._door.port

    async def on_stop(self) -> None:
        if self._door is not None:
            await self._door.stop()


def all_operations(health: HealthRegistry, parts: ApiParts, window: WindowParts) -> Sequence[RestOperation]:
    """Those of the API, in the order in which they are tried: one with a fixed path before one with a name there."""
    groups = (
        HealthOperations(health),
        ScopeOperations(parts),
        StreamOperations(parts),
        ReaderGroupOperations(parts),
        WindowOperations(window),
    )
    return tuple(operation for group in groups for operation in group.operations())


class DescriptionRoutes:
    """Makes the document when it is asked for first: that takes longer than all else of a server's start."""

    def __init__(self, operations: Sequence[RestOperation]) -> None:
        self._operations = operations
        folder = files("controller_service.api.rest").joinpath("explorer")
        self._files = {
            path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in EXPLORER_FILES.items()
        }

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/openapi.json", self._openapi), *(web.get(path, self._file) for path in self._files)]

    async def _openapi(self, request: web.Request) -> web.Response:
        text = await asyncio.to_thread(lambda: self._document_text)
        return web.json_response(text=text)

    @cached_property
    def _document_text(self) -> str:
        return json.dumps(document(self._operations))

    async def _file(self, request: web.Request) -> web.Response:
        content, kind = self._files[request.path]
        headers = {"Content-Security-Policy": OWN_POLICY, "X-Content-Type-Options": "nosniff"}
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)
