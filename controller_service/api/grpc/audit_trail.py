"""Records the administrative gRPC calls in the audit log, those that were refused included."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from controller_service.api.grpc.error_mapping import status_of
from controller_service.api.grpc.handlers import Behaviour, with_behaviour
from pravega_common.services.audit_log import NOBODY, AuditLog
from pravega_common.services.security.principal import CALLER

AUDITED: Final = frozenset(
    (
        "createScope",
        "deleteScope",
        "deleteScopeRecursive",
        "createStream",
        "updateStream",
        "scale",
        "truncateStream",
        "sealStream",
        "deleteStream",
        "createKeyValueTable",
        "deleteKeyValueTable",
        "createReaderGroup",
        "updateReaderGroup",
        "deleteReaderGroup",
        "GiveUpTransaction",
        "AcceptLoss",
        "ForgetSink",
        "SetScopeQuota",
    )
)
"""Calls by which a person changes what there is; those of readers, writers and sinks at their work are not among
them."""
CANCELLED: Final = grpc.StatusCode.CANCELLED.name
_REFUSALS: Final = frozenset(("UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"))


class AuditTrail(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Stands inside of the mapping of errors and outside of the guard."""

    def __init__(self, audit: AuditLog, *, asks_names: bool) -> None:
        """``asks_names``: callers without a name may do nothing."""
        self._audit = audit
        self._asks_names = asks_names

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        name = handler_call_details.method.rpartition("/")[2]
        if name not in AUDITED or handler is None or handler.unary_unary is None:
            return handler
        return with_behaviour(handler, self._recorded(handler.unary_unary, name))

    def _recorded(self, behaviour: Behaviour, name: str) -> Behaviour:
        async def call(request: Any, context: Any) -> Any:
            outcome = CANCELLED
            try:
                answer = await behaviour(request, context)
                outcome = outcome_of(answer)
                return answer
            except Exception as error:
                outcome = status_of(error).name
                raise
            finally:
                caller = CALLER.get()
                self._audit.note(
                    who=NOBODY if caller is None else caller.name,
                    peer=context.peer(),
                    call=name,
                    subject=subject_of(request),
                    outcome=outcome,
                    was_refused=outcome in _REFUSALS or (outcome == CANCELLED and caller is None and self._asks_names),
                )

        return call


def outcome_of(answer: Any) -> str:
    """The name of the status in an answer; OK for one without."""
    for field in answer.DESCRIPTOR.fields:
        if field.enum_type is not None and "status" in field.name.lower():
            value = field.enum_type.values_by_number.get(getattr(answer, field.name))
            return str(getattr(answer, field.name)) if value is None else str(value.name)
    return "OK"


def subject_of(request: Any) -> str:
    """The names in a request: ``scope``, or ``scope/name`` of a stream, table, reader group or transaction; of a sink
    its destination and its query."""
    if hasattr(request, "sink"):
        return f"{request.sink.destination}/{request.sink.query_id}"
    for field in ("streamInfo", "stream", "streamCut"):
        inner = getattr(request, field, None)
        if inner is not None and hasattr(inner, "DESCRIPTOR"):
            return subject_of(inner)
    names = [getattr(request, field, "") for field in ("scope", "stream", "kvtName", "readerGroup", "readerGroupName")]
    if hasattr(request, "transaction_high"):
        mask = (1 << 64) - 1
        names.append(str(uuid.UUID(int=(request.transaction_high & mask) << 64 | request.transaction_low & mask)))
    return "/".join(name for name in names if name and isinstance(name, str))
