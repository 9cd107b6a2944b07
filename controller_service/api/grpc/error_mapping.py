"""Maps errors to gRPC statuses (docs/controller-api.md 2.2).

Clients retry INTERNAL, UNKNOWN and most others for a long time, but give up at once on NOT_FOUND and INVALID_ARGUMENT:
whatever can never succeed gets one of those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import structlog
from prometheus_client import Counter, Histogram

from controller_service.api.grpc.call_limits import peer_host
from controller_service.api.grpc.decoding import Undecodable, decoded
from controller_service.api.grpc.handlers import Behaviour
from controller_service.api.grpc.method_access import METHODS
from controller_service.api.refused_calls import RefusedCalls
from controller_service.errors import (
    IllegalState,
    NoHost,
    OperationNotAllowed,
    PreconditionFailed,
    QuotaExceeded,
    WaitTimedOut,
)
from pravega_common.errors import (
    AccessDenied,
    AlreadyExists,
    AuthenticationFailed,
    DataCorruption,
    InvalidArgument,
    NotFound,
    PravegaError,
    RejectedError,
    SegmentNotFound,
    SegmentSealed,
    Throttled,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
    VersionConflict,
)

# The first class that fits counts, so subclasses stand before their parents.
_STATUSES: Final[tuple[tuple[type[PravegaError], grpc.StatusCode], ...]] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (SegmentNotFound, grpc.StatusCode.NOT_FOUND),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    # No RESOURCE_EXHAUSTED: clients repeat that for minutes.
    (QuotaExceeded, grpc.StatusCode.INVALID_ARGUMENT),
    (PreconditionFailed, grpc.StatusCode.FAILED_PRECONDITION),
    (VersionConflict, grpc.StatusCode.FAILED_PRECONDITION),
    (SegmentSealed, grpc.StatusCode.INTERNAL),
    (IllegalState, grpc.StatusCode.INTERNAL),
    (OperationNotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (WaitTimedOut, grpc.StatusCode.DEADLINE_EXCEEDED),
    (UnsupportedOperation, grpc.StatusCode.UNIMPLEMENTED),
    (AuthenticationFailed, grpc.StatusCode.UNAUTHENTICATED),
    (AccessDenied, grpc.StatusCode.PERMISSION_DENIED),
    (NoHost, grpc.StatusCode.UNAVAILABLE),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (Throttled, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DataCorruption, grpc.StatusCode.DATA_LOSS),
    (UnknownOutcome, grpc.StatusCode.UNAVAILABLE),
    (RejectedError, grpc.StatusCode.FAILED_PRECONDITION),
)

description_chars_max: Final = 1_000

CALLS: Final = Histogram(
    "pravega_controller_call_seconds",
    "Time to answer a gRPC call",
    ["method"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120),
)
FAILURES: Final = Counter(
    "pravega_controller_call_failures", "gRPC calls that ended with an error", ["method", "status"]
)
DEFECTS: Final = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
"""The statuses that no client brings about by itself: an alert asks how often calls end with them."""

log = structlog.get_logger(service="grpc-api")


def status_of(error: BaseException) -> grpc.StatusCode:
    """UNKNOWN for what is no error of this project."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), grpc.StatusCode.UNKNOWN)


def one_line(text: str) -> str:
    """The text as a description may have it: names in it may hold line breaks and control characters."""
    return "".join(char if char.isprintable() else " " for char in text[:description_chars_max])


class ErrorMapping(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Turns errors of handlers into statuses; a handler's bug becomes UNKNOWN and a line in the log.

    Stands outside of all others: what is no message reaches none of them, and a call whose refusal is held is in
    progress for none of them.
    """

    def __init__(self, refused: RefusedCalls) -> None:
        self._refused = refused
        for method in METHODS:  # a series that begins with a burst of failures would not be seen to grow by them
            for status in DEFECTS:
                FAILURES.labels(method.rpartition("/")[2], status.name)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            mapped(handler.unary_unary, handler_call_details.method, self._refused),
            request_deserializer=decoded(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )


def mapped(behaviour: Behaviour, method: str, refused: RefusedCalls) -> Behaviour:
    timed = CALLS.labels(method.rpartition("/")[2])

    async def call(request: Any, context: Any) -> Any:
        is_refused = False
        try:
            if isinstance(request, Undecodable):
                raise InvalidArgument(request.reason)
            with timed.time():
                return await behaviour(request, context)
        except PravegaError as error:
            status, message, is_refused = status_of(error), str(error), refused.counts(error)
        except NotImplementedError:
            status, message = grpc.StatusCode.UNIMPLEMENTED, f"{method} is not served"
        except (grpc.aio.AbortError, grpc.RpcError):
            raise
        except Exception as error:
            log.exception("handler failed", method=method)
            status, message = grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}"
        FAILURES.labels(method.rpartition("/")[2], status.name).inc()
        if is_refused:
            size = 0 if isinstance(request, Undecodable) else request.ByteSize()
            await refused.hold(peer_host(context.peer()), size)
        return await context.abort(status, one_line(message))

    return call
