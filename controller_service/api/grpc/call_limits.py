"""Limits the gRPC calls that are in progress: those of one host, of all, and beyond both a few for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import grpc

from controller_service.api.grpc.handlers import Behaviour, with_behaviour
from controller_service.api.grpc.method_access import OPERATORS_METHODS
from pravega_common.errors import Throttled
from pravega_common.services.host_counts import HostCounts

calls_max_default: Final = 4_096
calls_per_peer_max_default: Final = 1_024
operators_calls_max: Final = 64
"""Calls above the limits that are kept for what operators ask, and for the question whether a controller answers."""
operators_calls_per_peer_max: Final = 16


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The calls in progress. ``operators``: those that only the reserve had room for."""

    calls: HostCounts
    operators: HostCounts

    @classmethod
    def of(cls, calls_max: int = calls_max_default, per_peer_max: int = calls_per_peer_max_default) -> CallCounts:
        calls = HostCounts("calls", "are in progress", calls_max, per_peer_max)
        reserve = HostCounts("calls", "are in the reserve", operators_calls_max, operators_calls_per_peer_max)
        return cls(calls, reserve)

    def enter(self, host: str, method: str) -> HostCounts:
        """Count a call; returns the counts that it has to leave. ``Throttled`` if there is no room for it."""
        for counts in (self.calls, self.operators) if method in OPERATORS_METHODS else (self.calls,):
            if not counts.refusal(host):
                counts.enter(host)
                return counts
        # Counted once, where the limits are that it met first.
        raise Throttled(self.calls.enter(host))


class CallLimits(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls above the limits before anything is done for them. Stands inside of the mapping of errors."""

    def __init__(self, counts: CallCounts) -> None:
        self._counts = counts

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        return with_behaviour(handler, self._limited(handler.unary_unary, handler_call_details.method))

    def _limited(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def call(request: Any, context: Any) -> Any:
            host = peer_host(context.peer())
            entered = self._counts.enter(host, method)
            try:
                return await behaviour(request, context)
            finally:
                entered.leave(host)

        return call


def peer_host(peer: str) -> str:
    """The address in what gRPC calls a peer: ``ipv4:10.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer
