"""Records the REST requests that change something in the audit log, those that were refused included."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from aiohttp import web

from controller_service.api.rest.errors import Handler
from pravega_common.services.audit_log import NOBODY, AuditLog

CALLER_NAME: Final = web.RequestKey("caller_name", str)
"""Where the guard leaves the name of the caller."""
_CHANGING: Final = ("POST", "PUT", "DELETE", "PATCH")
_NAMES_IN_BODY: Final = ("scopeName", "streamName")


class RestAuditTrail:
    """Middleware outside of the mapping of errors, which sees the status that the caller gets."""

    def __init__(self, audit: AuditLog, *, asks_names: bool) -> None:
        """``asks_names``: callers without a name may do nothing."""
        self._audit = audit
        self._asks_names = asks_names

    @web.middleware
    async def record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in _CHANGING:
            return await handler(request)
        status = 0
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            resource = request.match_info.route.resource
            self._audit.note(
                who=request.get(CALLER_NAME, NOBODY),
                peer=str(request.remote),
                call=f"{request.method} {'' if resource is None else resource.canonical}",
                subject=await _subject_of(request, status),
                outcome=str(status) if status else "CANCELLED",
                was_refused=HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
                or (not status and self._asks_names and CALLER_NAME not in request),
            )


async def _subject_of(request: web.Request, status: int) -> str:
    """The names in the path, and that in a body which was good."""
    names = list(request.match_info.values())
    if 0 < status < HTTPStatus.BAD_REQUEST and request.method == "POST":
        body = json.loads(await request.read())
        names += [str(body[key]) for key in _NAMES_IN_BODY if key in body]
    return "/".join(names)
