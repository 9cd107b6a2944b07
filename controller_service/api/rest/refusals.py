"""Holds answers that refuse requests, for hosts that are refused again and again (``../refused_calls.py``)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web

from controller_service.api.refused_calls import RefusedCalls
from controller_service.api.rest.errors import Handler

_REFUSALS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.EXPECTATION_FAILED,
    }
)
"""Statuses that refuse a request for what it is, and not for what there is."""


class RestRefusals:
    """Middleware outside of the doors, the mapping of errors and the guard, which sees what the caller gets."""

    def __init__(self, refused: RefusedCalls) -> None:
        self._refused = refused

    @web.middleware
    async def hold(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            # What the API raises itself, also for a path that it does not have.
            if error.status in _REFUSALS or error.status == HTTPStatus.NOT_FOUND:
                await self._refused.hold(str(request.remote), request.content_length or 0)
            raise
        if response.status in _REFUSALS:
            await self._refused.hold(str(request.remote), request.content_length or 0)
        return response
