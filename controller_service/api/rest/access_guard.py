"""Lets REST requests through that their caller may make (docs/security.md 4).

Every method and path is in one of two tables: open ones, which show nothing of what the cluster holds, and those that
need a permission. One that is in neither is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from controller_service.api.grpc.access_guard import AUTHORIZATION, AccessControl
from controller_service.api.rest.audit_trail import CALLER_NAME
from controller_service.api.rest.errors import Handler, status_line_text
from controller_service.api.rest.live import STILL_PERMITTED
from controller_service.window.page_routes import PAGE_FILES
from pravega_common.errors import AccessDenied, AuthenticationFailed
from pravega_common.resources import ROOT, Permission, reader_group_resource, scope_resource, stream_resource
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.principal import CALLER, Principal

READ, UPDATE = Permission.READ, Permission.READ_UPDATE
Names = Mapping[str, str]
"""The parts of a path, by their names there."""
Need = tuple[Callable[[Names], str], Permission]

_HEALTH: Final = ("", "/readiness", "/liveness", "/status")
DETAILED: Final = frozenset({("GET", "/v1/health"), ("GET", "/v1/health/{id}")})
"""Open, but for the details in their answers, which name streams and transactions."""
OPEN: Final = frozenset(
    ("GET", path)
    for path in (
        "/ping",
        "/docs",
        "/docs/explorer.js",
        "/docs/explorer.css",
        "/openapi.json",
        *PAGE_FILES,
        *(f"/v1/health{aspect}{part}" for aspect in _HEALTH for part in ("", "/{id}")),
    )
)
"""What probes, the description of the API and the empty page of the window need."""


def _root(names: Names) -> str:
    return ROOT


def _scope(names: Names) -> str:
    return scope_resource(names["scope"])


def _stream(names: Names) -> str:
    return stream_resource(names["scope"], names["stream"])


def _group(names: Names) -> str:
    return reader_group_resource(names["scope"], names["group"])


_SCOPE: Final = "/v1/scopes/{scope}"
_STREAM: Final = f"{_SCOPE}/streams/{{stream}}"
_GROUP: Final = f"{_SCOPE}/readergroups/{{group}}"
_WINDOW: Final = "/v1/window"
_SHOWN: Final = "/scopes/{scope}/streams/{stream}"
NEEDS: Final[Mapping[tuple[str, str], Need | None]] = {
    ("GET", "/metrics"): (_root, READ),
    ("GET", "/v1/health/details"): (_root, READ),
    ("GET", "/v1/health/details/{id}"): (_root, READ),
    # The list shows the scopes that the caller may read.
    ("GET", "/v1/scopes"): None,
    ("POST", "/v1/scopes"): (_root, UPDATE),
    ("GET", _SCOPE): (_scope, READ),
    ("DELETE", _SCOPE): (_root, UPDATE),
    ("GET", f"{_SCOPE}/quota"): (_scope, READ),
    ("PUT", f"{_SCOPE}/quota"): (_root, UPDATE),
    ("GET", f"{_SCOPE}/streams"): (_scope, READ),
    ("POST", f"{_SCOPE}/streams"): (_scope, UPDATE),
    ("GET", _STREAM): (_stream, READ),
    ("PUT", _STREAM): (_stream, UPDATE),
    ("DELETE", _STREAM): (_stream, UPDATE),
    ("PUT", f"{_STREAM}/state"): (_stream, UPDATE),
    ("GET", f"{_STREAM}/scaling-events"): (_stream, READ),
    ("GET", f"{_SCOPE}/readergroups"): (_scope, READ),
    ("GET", _GROUP): (_group, READ),
    ("DELETE", _GROUP): (_group, UPDATE),
    # These show streams of all scopes.
    ("GET", f"{_WINDOW}/cluster"): (_root, READ),
    ("GET", f"{_WINDOW}/streams"): (_root, READ),
    ("GET", f"{_WINDOW}/live/streams"): (_root, READ),
    ("GET", f"{_WINDOW}{_SHOWN}"): (_stream, READ),
    ("GET", f"{_WINDOW}{_SHOWN}/use"): (_stream, READ),
    ("GET", f"{_WINDOW}{_SHOWN}/lag"): (_stream, READ),
    ("GET", f"{_WINDOW}{_SHOWN}/events"): (_stream, READ),
    ("GET", f"{_WINDOW}{_SHOWN}/picture"): (_stream, READ),
    ("GET", f"{_WINDOW}/live{_SHOWN}"): (_stream, READ),
}
"""None: for every user of the cluster."""


def _place_of(request: web.Request) -> tuple[str, str]:
    """The method and the path as the tables have them."""
    resource = request.match_info.route.resource
    return request.method, "" if resource is None else resource.canonical


def access_guard(access: AccessControl, *, metrics_open: bool) -> Callable[..., object]:
    """The middleware. ``metrics_open``: whether ``/metrics`` is served to everybody."""
    is_open = OPEN | ({("GET", "/metrics")} if metrics_open else set())

    async def _principal(request: web.Request) -> Principal:
        return await access.authentication.principal(request.headers.get(AUTHORIZATION, ""), str(request.remote))

    async def _permitted(request: web.Request) -> Principal:
        """The caller; ``AuthenticationFailed``, ``AccessDenied``."""
        caller = await _principal(request)
        request[CALLER_NAME] = caller.name
        place = _place_of(request)
        if place not in NEEDS:
            raise AccessDenied(f"{request.method} {request.path} is not a request that anybody may make")
        need = NEEDS[place]
        if need is not None:
            caller.require(need[0](request.match_info), need[1])
        return caller

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        place = _place_of(request)
        if place in DETAILED:
            return await _with_or_without_details(request, handler)
        if place in is_open:
            return await handler(request)
        try:
            caller = await _permitted(request)
        except AuthenticationFailed as error:
            headers = {"WWW-Authenticate": access.authentication.challenge}
            return web.Response(status=HTTPStatus.UNAUTHORIZED, reason=status_line_text(str(error)), headers=headers)
        except AccessDenied as error:
            return web.Response(status=HTTPStatus.FORBIDDEN, reason=status_line_text(str(error)))
        # A live answer outlasts this look: passwords, tokens and permissions end meanwhile.
        request[STILL_PERMITTED] = _permitted
        # Further requests of the connection are served by the same task.
        before = CALLER.set(caller)
        try:
            return await handler(request)
        finally:
            CALLER.reset(before)

    async def _with_or_without_details(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            caller = await _principal(request)
        except AuthenticationFailed:
            caller = Principal("nobody", AccessEntries(()))
        before = CALLER.set(caller)
        try:
            return await handler(request)
        finally:
            CALLER.reset(before)

    return guard
