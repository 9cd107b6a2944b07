"""Maps errors to the statuses of Pravega's REST API; the reason is in the status line, the body is empty."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import structlog
from aiohttp import web

from controller_service.errors import QuotaExceeded, StreamBeingDeleted
from pravega_common.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PravegaError,
    ScopeNotEmpty,
    SegmentNotFound,
    StreamNotSealed,
    Throttled,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

reason_chars_max: Final = 200

log = structlog.get_logger(service="rest-api")


@web.middleware
async def map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except PravegaError as error:
        status = _status_of(error)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("request failed", method=request.method, path=request.path, error=repr(error))
        return web.Response(status=status, reason=status_line_text(str(error)))
    except ConnectionResetError:
        # The peer went away before its body was there: nobody reads the answer, and nothing is wrong here.
        return web.Response(status=HTTPStatus.BAD_REQUEST)
    except Exception:
        log.exception("handler failed", method=request.method, path=request.path)
        return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR)


def status_line_text(text: str) -> str:
    """The text as a status line may have it: one line of printable ASCII. Others would end the header, or not be
    understood by clients."""
    plain = " ".join(text.split())
    return "".join(char if " " <= char <= "~" else "?" for char in plain)[:reason_chars_max]


def _status_of(error: PravegaError) -> int:
    match error:
        case InvalidArgument():
            return HTTPStatus.BAD_REQUEST
        case NotFound() | SegmentNotFound():
            return HTTPStatus.NOT_FOUND
        case AlreadyExists() | StreamBeingDeleted():
            return HTTPStatus.CONFLICT
        case QuotaExceeded():
            return HTTPStatus.FORBIDDEN
        case StreamNotSealed() | ScopeNotEmpty():
            return HTTPStatus.PRECONDITION_FAILED
        case Throttled():
            return HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.INTERNAL_SERVER_ERROR
